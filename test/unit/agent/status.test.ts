import { expect, test } from "vitest";
import { buildHealth } from "../../../src/agent/status.ts";
import type { Status } from "../../../src/protocol/local-answers.ts";
import { someStatus } from "../../support/fake-local-provider.ts";

function health(status: Status) {
  return buildHealth({
    status,
    clockOffsetSeconds: 0,
    diskUsedRatio: 0.1,
    isStatePersistent: true,
    dns: true,
    repository: undefined,
    ssh: true,
    refusedSignatures: 0,
  });
}

const at = (stateDir: string, runDir: string): Status => ({ ...someStatus(), state: { stateDir, runDir } });

test("a deleted node is told to reset and to register again", () => {
  const session = { state: "waiting", since: 1, attempt: 3, reason: { code: "deleted", message: "deleted" } } as const;
  const { verdict, items } = health({
    ...at("/var/lib/holdfast", "/run/holdfast"),
    session: { ...session, url: "" },
    deletedAt: 1,
  });
  expect(verdict).toBe("degraded");
  expect(items[0]).toMatchObject({
    status: "fail",
    message: "the control plane deleted this node; its data plane and containers are stopped",
    fix: "stop the agent, run 'holdfast reset', then with a new license run 'holdfast register <license>'",
  });
});

test("a hint repeats the directories that are not the usual ones", () => {
  const { items } = health({ ...at("/srv/a node", "/run/holdfast"), node: null });
  expect(items[0]?.fix).toBe(
    "get a license from the control plane and run 'holdfast register <license> --state '/srv/a node''",
  );
});

test("a fault that is mended is told as one that is over", () => {
  const fault = {
    code: "damaged-file",
    message: "desired/node.json was damaged; it was set aside and begun anew",
    since: 1,
  };
  expect(health(someStatus({ faults: [fault] }))).toMatchObject({ verdict: "degraded" });
  const { verdict, items } = health(someStatus({ faults: [{ ...fault, mendedAt: 5 }] }));
  expect(verdict).toBe("ok");
  expect(items.at(-1)).toEqual({
    name: "damaged-file",
    status: "pass",
    message: "desired/node.json was damaged; it was set aside and begun anew; mended since",
    since: 5,
  });
});
