import type { Reader } from "../../host/reader.ts";

/** Counts the sockets of flows, so that the process does not run out of descriptors. */
export interface SocketBudget {
  hasRoom(sockets: number): boolean;
  take(sockets: number): void;
  give(sockets: number): void;
}

/** Descriptors for files, the control socket, name servers, health checks and the runtime. */
const RESERVED = 64;
const FALLBACK_LIMIT = 1024;

/** Limits sockets to `limit` descriptors minus `used()`, those of listeners, and a reserve of 64. */
export function socketBudget(limit: number, used: () => number): SocketBudget {
  let taken = 0;
  return {
    hasRoom: (sockets) => taken + sockets + used() + RESERVED <= limit,
    take: (sockets) => void (taken += sockets),
    give: (sockets) => void (taken -= sockets),
  };
}

/** Returns the descriptor limit of this process (getrlimit(2), RLIMIT_NOFILE). */
export function descriptorLimit(reader: Reader): number {
  const limit = Number(/^Max open files\s+(\d+)/m.exec(reader.read("/proc/self/limits") ?? "")?.[1]);
  return Number.isInteger(limit) && limit > 0 ? limit : FALLBACK_LIMIT;
}
