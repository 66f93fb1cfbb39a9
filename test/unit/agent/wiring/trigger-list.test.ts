import { pino } from "pino";
import { expect, test } from "vitest";
import { listTriggers } from "../../../../src/agent/wiring/trigger-list.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostConntrack } from "../../../../src/host/network/conntrack.ts";
import { hostExec } from "../../../../src/host/process/exec.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { hostPower } from "../../../../src/host/process/power.ts";
import { hostReader } from "../../../../src/host/reader.ts";
import { triggerEvents } from "../../../../src/protocol/values/trigger-events.ts";
import { EventName } from "../../../../src/protocol/values/values.ts";
import { FakeCompute } from "../../../support/containers/fake-compute.ts";
import { ScriptedTunnels } from "../../../support/overlay/scripted-tunnels.ts";

const clock = systemClock();
const exec = hostExec(clock);
const unasked = (): void => undefined;
const triggers = listTriggers({
  clock,
  exec,
  files: hostFiles(),
  power: hostPower(exec, { isManaged: false, unit: "" }),
  networkView: {
    conntrack: hostConntrack({ exec, reader: hostReader(), record: () => Promise.resolve() }),
    nats: () => [],
    natWatch: { refresh: unasked, hits: () => Promise.resolve(new Map()), reset: () => 0, close: unasked },
  },
  overlay: {
    flows: () => Promise.resolve({ flows: [], total: 0 }),
    cutFlows: () => Promise.resolve({ flows: [], total: 0 }),
  },
  cleanStop: { mark: () => Promise.resolve(), clear: () => Promise.resolve() },
  upgrades: {
    ask: () => Promise.reject(new Error("no upgrade")),
    isAtWork: () => Promise.resolve(false),
  },
  why: () => ({ schema: 1, reasons: [] }),
  speedTestTarget: () => undefined,
  applying: {
    plan: () => Promise.resolve({ schema: 1, sections: [], notes: [] }),
    config: () => ({}),
    keepNetwork: () => Promise.resolve({ schema: 1 }),
    revertNetwork: () => Promise.resolve({ schema: 1 }),
    rollback: ({ document }) => Promise.resolve({ schema: 1, document, from: 2, to: 1 }),
  },
  diagnosis: {
    exec,
    reader: hostReader(),
    isManaged: false,
    status: () => {
      throw new Error("no status");
    },
    health: () => ({ schema: 1, verdict: "ok", items: [] }),
    logs: () => (async function* () {})(),
    checks: () => undefined,
    resolvedName: () => undefined,
    repositoryUrl: () => undefined,
  },
  tunnels: new ScriptedTunnels(),
  containers: { compute: () => new FakeCompute(), registryHost: () => undefined, audit: unasked },
  dataStore: { handle: () => Promise.resolve({}), create: () => Promise.reject(new Error("no file")) },
  captures: { handle: () => Promise.reject(new Error("no capture")) },
  makeBundle: () => Promise.reject(new Error("no bundle")),
  log: pino({ level: "silent" }),
  memory: { tap: () => unasked },
  announceRestart: () => Promise.resolve(),
});

/** The minimal body of an event. */
const MINIMAL: Readonly<Partial<Record<string, object>>> = {
  "container-image": { action: "list" },
  "container-logs": { container: "web" },
  "gateway-latency": { gateway: "gate" },
  "gateway-mtr": { dest: "gate" },
  "gateway-perf": { dest: "edge" },
  "gateway-ping": { dest: "edge" },
  "gateway-traceroute": { dest: "gate" },
  "nat-hits": { action: "GET" },
  "outbound-connection-check": { remoteAddress: "h:1" },
  "tg-arping": { iface: "eth0", host: "10.0.0.1" },
  "tg-capture": { action: "status" },
  "tg-mtr": { hostname: "h" },
  "tg-nc": { host: "h", port: 1 },
  "tg-ping": { host: "h" },
  "tg-tcpdump": { iface: "eth0" },
  "tg-traceroute": { host: "h" },
};

test("names each event once, and offers these names to people", () => {
  expect(triggers.map(({ event }) => event).sort()).toEqual([...triggerEvents].sort());
});

test.each(triggers.map((trigger) => [trigger.event, trigger] as const))("%s keeps the contract", (event, trigger) => {
  expect(EventName.parse(event)).toBe(event);
  expect(trigger.deadlineMs).toBeGreaterThan(0);
  expect(trigger.deadlineMs).toBeLessThanOrEqual(3_600_000);
  expect(trigger.kind === "stream" || trigger.kind === "one-shot").toBe(true);
  // Anything but an object is refused without an exception.
  expect(trigger.request.safeParse(7).success).toBe(false);
  // So is an unknown field, so that a caller learns of a misspelling.
  if (event === "container-exec") return; // It refuses every body.
  const minimal = MINIMAL[event] ?? {};
  expect(trigger.request.safeParse(minimal).error?.issues).toBeUndefined();
  const unknown = trigger.request.safeParse({ ...minimal, "no-such-field": 1 });
  expect(unknown.error?.issues).toMatchObject([{ code: "unrecognized_keys", keys: ["no-such-field"] }]);
});
