import { parseLoad, parseMemory, parseUptime } from "../../host/proc.ts";
import type { Memory } from "../../host/proc.ts";
import type { Reader } from "../../host/reader.ts";
import type { DiskSpace } from "../../host/files/files.ts";
import type { DataPlaneState } from "../../protocol/local/mesh.ts";
import type { Heartbeat } from "../../protocol/channel/methods.ts";
import { defined } from "../../lib/defined.ts";

export interface HeartbeatReadings {
  readonly uptimeSeconds: number;
  readonly load: number;
  readonly memory: Memory;
  readonly disk: DiskSpace;
}

/** What the rest of the agent adds. `at` in Unix milliseconds. */
export interface HeartbeatContext {
  readonly seq: number;
  readonly at: number;
  /** The round trip of the last ping; undefined before the first pong. */
  readonly sessionRttMs: number | undefined;
  readonly overlay: Heartbeat["overlay"] | undefined;
  readonly queue: Heartbeat["queue"];
}

const NO_DISK: DiskSpace = { totalBytes: 0, freeBytes: 0, usedBytes: 0 };

/** Reads each of its sources once; what cannot be read counts as 0, since a heartbeat without it is better than none. */
export function readHeartbeat(reader: Reader): HeartbeatReadings {
  return {
    uptimeSeconds: parseUptime(reader.read("/proc/uptime") ?? "") ?? 0,
    load: parseLoad(reader.read("/proc/loadavg") ?? "") ?? 0,
    memory: parseMemory(reader.read("/proc/meminfo") ?? "") ?? { totalBytes: 0, availableBytes: 0 },
    disk: reader.space("/") ?? NO_DISK,
  };
}

export function buildHeartbeat(readings: HeartbeatReadings, context: HeartbeatContext): Heartbeat {
  const { totalBytes, freeBytes } = readings.disk;
  const { sessionRttMs, overlay, ...rest } = context;
  return {
    ...rest,
    uptimeSeconds: readings.uptimeSeconds,
    load: readings.load,
    memory: readings.memory,
    disk: { totalBytes, freeBytes, usedRatio: usedRatio(readings.disk) },
    ...defined({ sessionRttMs, overlay }),
  };
}

/**
 * Describes the overlay in a heartbeat: down without its process, else by its paths to other nodes. Undefined if nothing needs it,
 * and while its state is unknown.
 */
export function overlayBeat(
  { state }: { readonly state: "up" | "down" | "off" },
  dataPlane: { readonly state: DataPlaneState },
): Heartbeat["overlay"] {
  if (state === "down") return "DOWN";
  if (state === "off") return undefined;
  switch (dataPlane.state) {
    case "down":
      return "DOWN";
    case "degraded":
      return "DEGRADED";
    case "up":
    case "none":
      return "UP";
    case "unknown":
      return undefined;
  }
}

/** As df(1) has it: of what an unprivileged process could use in all. */
export function usedRatio({ usedBytes, freeBytes }: DiskSpace): number {
  const usable = usedBytes + freeBytes;
  return usable === 0 ? 0 : usedBytes / usable;
}
