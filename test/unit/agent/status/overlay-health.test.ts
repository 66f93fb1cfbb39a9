import { expect, it } from "vitest";
import type { OverlayStatus } from "../../../../src/host/overlay/client.ts";
import { buildHealth, buildStatus, type StatusInput } from "../../../../src/agent/status/status.ts";
import type { DataPlane } from "../../../../src/protocol/local/mesh.ts";
import { Health, Status } from "../../../../src/protocol/local/answers.ts";
import { identity } from "../../../support/fake-local-provider.ts";

const NO_PLANE: DataPlane = { state: "none", paths: 0, up: 0 };

function looked(overlay: OverlayStatus, dataPlane: DataPlane = NO_PLANE) {
  const input: StatusInput = {
    now: 2000,
    startedAt: 1000,
    uptimeMs: 1000,
    stateDir: "/s",
    runDir: "/r",
    registration: undefined,
    session: { state: "online", since: 1, attempt: 1 },
    desired: {},
    applied: new Map(),
    telemetry: {},
    network: "netlink",
    overlay,
    dataPlane,
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
  const find = (wanted: string) => items.find(({ name }) => name === wanted);
  return {
    engines: status.engines,
    verdict,
    item: find("overlay"),
    ways: find("data-plane"),
    server: find("gateway-server"),
  };
}

it("is in the status and the health: up and off are well, down fails with the reason and what to do", () => {
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

it("reports the path that carries traffic to other nodes and why, and none without one", () => {
  const up = { state: "up", since: 5, pid: 42 } as const;
  expect(looked(up)).toMatchObject({ ways: undefined, server: undefined });
  const carrier = { gateway: "gw2", path: "wan2", since: 7, reason: "gw1 answers no probe" };
  const half = looked(up, { state: "degraded", paths: 2, up: 1, carrier });
  expect(half).toMatchObject({ verdict: "degraded", ways: { status: "warn", since: 7 } });
  expect(half.ways?.message).toBe(
    "1 of 2 paths to gateways up; gw2 by path wan2 carries the traffic (gw1 answers no probe)",
  );
  expect(half.engines.dataPlane?.carrier).toEqual(carrier);
  expect(looked(up, { state: "up", paths: 1, up: 1 })).toMatchObject({ ways: { status: "pass" } });
  expect(looked(up, { state: "down", paths: 1, up: 0 })).toMatchObject({ verdict: "failed", ways: { status: "fail" } });
  expect(looked(up, { state: "unknown", paths: 1, up: 0 }).ways?.status).toBe("unknown");
});

it("reports whether the node's own gateway listens", () => {
  const up = { state: "up", since: 5, pid: 42 } as const;
  expect(looked(up, { ...NO_PLANE, server: "listening" })).toMatchObject({ server: { status: "pass" } });
  const failed = looked(up, { ...NO_PLANE, server: "failed" });
  expect(failed).toMatchObject({ verdict: "failed", ways: undefined, server: { status: "fail" } });
});
