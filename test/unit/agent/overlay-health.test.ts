import { expect, it } from "vitest";
import type { OverlayStatus } from "../../../src/host/overlay.ts";
import { buildHealth, buildStatus, type StatusInput } from "../../../src/agent/status.ts";
import { Health, Status } from "../../../src/protocol/local-api.ts";
import { identity } from "../../support/fake-local-provider.ts";

function looked(overlay: OverlayStatus) {
  const input: StatusInput = {
    now: 2000,
    startedAt: 1000,
    stateDir: "/s",
    runDir: "/r",
    registration: undefined,
    session: { state: "online", since: 1, attempt: 1 },
    desired: {},
    applied: new Map(),
    telemetry: {},
    network: "netlink",
    overlay,
    process: { rssBytes: 1, cpuSeconds: 1, children: 0 },
    faults: [],
  };
  const status = { ...Status.parse(buildStatus(input)), node: identity };
  const health = buildHealth({
    status,
    clockOffsetSeconds: 0,
    diskUsedRatio: 0.1,
    isStatePersistent: true,
    dns: true,
    repository: true,
    ssh: true,
    refusedSignatures: 0,
  });
  const { items, verdict } = Health.parse(health);
  return { engines: status.engines, verdict, item: items.find(({ name }) => name === "overlay") };
}

it("is in the status and the health: up and off are well, down fails and says why and what to do", () => {
  expect(looked({ state: "up", since: 5, pid: 42 })).toMatchObject({
    engines: { overlay: { state: "up", since: 5, pid: 42 } },
    item: { status: "pass", message: "serves as process 42", since: 5 },
  });
  expect(looked({ state: "off", since: 5 }).item).toMatchObject({ status: "pass" });
  const down = looked({ state: "down", since: 5, reason: `it ended ${"x".repeat(5000)}` });
  expect(down.verdict).toBe("failed");
  expect(down.item).toMatchObject({ status: "fail", since: 5 });
  expect(down.item?.message).toMatch(/^down: it ended x+$/);
  expect(down.item?.fix).toContain("overlay.log");
});
