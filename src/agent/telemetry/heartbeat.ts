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

/** Values of other parts of the agent. `at` in Unix milliseconds. */
export interface HeartbeatContext {
  readonly seq: number;
  readonly at: number;
  /** Round trip of the last ping; undefined before the first pong. */
  readonly sessionRttMs: number | undefined;
  readonly overlay: Heartbeat["overlay"] | undefined;
  readonly queue: Heartbeat["queue"];
}

const NO_DISK: DiskSpace = { totalBytes: 0, freeBytes: 0, usedBytes: 0 };

/** Reads each source once; an unreadable value is 0, so that the heartbeat is still sent. */
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
 * Describes the overlay in a heartbeat: down without its process, else by its paths. Undefined if nothing needs it, and while its state is
 * unknown.
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

/** Percent of the space usable by an unprivileged process, like df(1). */
export function usedRatio({ usedBytes, freeBytes }: DiskSpace): number {
  const usable = usedBytes + freeBytes;
  return usable === 0 ? 0 : usedBytes / usable;
}
