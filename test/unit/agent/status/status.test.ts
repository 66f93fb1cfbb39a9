import { expect, test } from "vitest";
import { buildHealth, buildStatus, type StatusInput } from "../../../../src/agent/status/status.ts";
import type { Status } from "../../../../src/protocol/local/answers.ts";
import { identity, someStatus } from "../../../support/fake-local-provider.ts";

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

test("tells the operator of a deleted node to reset and register again", () => {
  const session = { state: "waiting", since: 1, attempt: 3, reason: { code: "deleted", message: "deleted" } } as const;
  const { verdict, items } = health({
    ...at("/var/lib/holdfast", "/run/holdfast"),
    session: { ...session, url: "" },
    deletedAt: 1,
  });
  expect(verdict).toBe("failed");
  expect(items[0]).toMatchObject({
    status: "fail",
    message: "the control plane deleted this node; its data plane and containers are stopped",
    fix: "run 'holdfast reset', then with a new license run 'holdfast register <license>'",
  });
});

test("a hint repeats unusual directories", () => {
  const { items } = health({ ...at("/srv/a node", "/run/holdfast"), node: null });
  expect(items[0]?.fix).toBe(
    "get a license from the control plane and run 'holdfast register <license> --state '/srv/a node''",
  );
});

test("reports a repaired fault as ended", () => {
  const fault = {
    code: "damaged-file",
    message: "desired/node.json was damaged; it was set aside and a new one was started",
    since: 1,
  };
  expect(health(someStatus({ faults: [fault] }))).toMatchObject({ verdict: "degraded" });
  const { verdict, items } = health(someStatus({ faults: [{ ...fault, mendedAt: 5 }] }));
  expect(verdict).toBe("ok");
  expect(items.at(-1)).toEqual({
    name: "damaged-file",
    status: "pass",
    message: "desired/node.json was damaged; it was set aside and a new one was started; mended since",
    since: 5,
  });
});

const unsupported = { state: "unsupported" as const, issues: [], steps: 0 };
const held = { version: 1, sub: "u", receivedAt: 0, passedOver: [] };
const { uid, name, fqdn, domain, org } = identity;
const type = "Agent";
const node = { uid, name, fqdn, domain, org, type, state: "ACTIVE", tags: {}, settings: {}, config: {} } as const;
const input: StatusInput = {
  now: 2000,
  startedAt: 1000,
  uptimeMs: 1000,
  stateDir: "/s",
  runDir: "/r",
  registration: undefined,
  session: { state: "online", since: 1, attempt: 1 },
  desired: { node: { ...held, body: node } },
  applied: new Map([
    [
      "node",
      {
        name: "node",
        version: 1,
        at: 1,
        durationMs: 1,
        outcome: "partial",
        sections: { snmp: unsupported, alert: unsupported },
      },
    ],
  ]),
  telemetry: {},
  network: "netlink",
  overlay: { state: "off", since: 1 },
  dataPlane: { state: "none", paths: 0, up: 0 },
  process: { rssBytes: 1, cpuSeconds: 1, children: 0 },
  faults: [],
};

test("hides a section that nodes of this type never have", () => {
  expect(Object.keys(buildStatus(input).sections)).toEqual(["snmp"]);
});

test("shows the tags that count: the node's own, and those of its cluster with other names", () => {
  const body = { fqdn: "pair.example.net", members: [], tags: { site: "oslo", env: "prod" }, config: {} };
  const desired = { node: { ...held, body: { ...node, tags: { site: "rome" } } }, cluster: { ...held, body } };
  expect(buildStatus({ ...input, desired }).tags).toEqual({ site: "rome", env: "prod" });
});

test("reports a node held for its source address with the code, and what to do", () => {
  const restricted = { code: "unauthorized-ip", address: "192.0.2.7" };
  const { verdict, items } = health(someStatus({ nodeState: "INACTIVE", restricted }));
  expect(verdict).toBe("failed");
  const item = items.find(({ name }) => name === "unauthorized-ip");
  expect(item).toMatchObject({ status: "fail", fix: expect.stringContaining("PUT /node/UID/lock") as string });
  expect(item?.message).toContain("this node connects from 192.0.2.7");
});
