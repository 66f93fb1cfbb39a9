import { execFileSync } from "node:child_process";
import { totalmem } from "node:os";
import { expect, test } from "vitest";
import { buildHeartbeat, overlayBeat, readHeartbeat, usedRatio } from "../../../../src/agent/telemetry/heartbeat.ts";
import { hostReader } from "../../../../src/host/reader.ts";
import type { Reader } from "../../../../src/host/reader.ts";
import { Heartbeat } from "../../../../src/protocol/channel/methods.ts";
import { machineRoot } from "../../../support/machine/machine-root.ts";

const CONTEXT = {
  seq: 1,
  at: 1_795_216_193_000,
  sessionRttMs: undefined,
  overlay: "DOWN",
  queue: { records: 0, dropped: 0 },
} as const;

/** Counts the reads of another reader. */
function counting(inner: Reader): { reader: Reader; requested: string[] } {
  const requested: string[] = [];
  const count =
    <T>(ask: (path: string) => T) =>
    (path: string): T => {
      requested.push(path);
      return ask(path);
    };
  const reader = {
    read: count((path) => inner.read(path)),
    list: count((path) => inner.list(path)),
    linkTarget: count((path) => inner.linkTarget(path)),
    fingerprint: count((path) => inner.fingerprint(path)),
    space: count((path) => inner.space(path)),
  };
  return { reader, requested };
}

test("this machine's heartbeat is valid in the protocol, from four readings", () => {
  const { reader, requested } = counting(hostReader());
  const heartbeat = buildHeartbeat(readHeartbeat(reader), { ...CONTEXT, sessionRttMs: 12.5 });
  expect(Heartbeat.parse(heartbeat)).toEqual(heartbeat);
  expect(heartbeat.memory.totalBytes).toBe(totalmem());
  expect(heartbeat.sessionRttMs).toBe(12.5);
  expect(requested.sort()).toEqual(["/", "/proc/loadavg", "/proc/meminfo", "/proc/uptime"]);
});

test.each([
  ["up", "up", "UP"],
  ["up", "none", "UP"],
  ["up", "degraded", "DEGRADED"],
  ["up", "down", "DOWN"],
  ["down", "none", "DOWN"],
  ["down", "unknown", "DOWN"],
  ["off", "none", undefined],
  ["off", "unknown", undefined],
  ["up", "unknown", undefined],
] as const)("shows an overlay that is %s with paths that are %s as %s", (state, paths, shown) => {
  const overlay = overlayBeat({ state }, { state: paths });
  expect(overlay).toBe(shown);
  const heartbeat = buildHeartbeat(readHeartbeat(machineRoot({}).reader), { ...CONTEXT, overlay });
  expect(Heartbeat.parse(heartbeat)).toEqual(heartbeat);
  expect("overlay" in heartbeat).toBe(shown !== undefined);
});

test("the used share of the disk equals that of df", () => {
  const [, percent] = execFileSync("df", ["--output=pcent", "/"], { encoding: "utf8" }).trim().split("\n");
  const { disk } = buildHeartbeat(readHeartbeat(hostReader()), CONTEXT);
  expect(Math.abs(disk.usedRatio * 100 - Number.parseInt(percent ?? "", 10))).toBeLessThanOrEqual(1);
  expect(usedRatio({ totalBytes: 100, usedBytes: 30, freeBytes: 60 })).toBeCloseTo(1 / 3);
  expect(usedRatio({ totalBytes: 0, usedBytes: 0, freeBytes: 0 })).toBe(0);
});

test("a machine without readings still has a heartbeat", () => {
  const heartbeat = buildHeartbeat(readHeartbeat(machineRoot({}).reader), CONTEXT);
  expect(Heartbeat.parse(heartbeat)).toEqual(heartbeat);
  expect(heartbeat).toMatchObject({ uptimeSeconds: 0, load: 0, memory: { totalBytes: 0 } });
  expect("sessionRttMs" in heartbeat).toBe(false);
});
