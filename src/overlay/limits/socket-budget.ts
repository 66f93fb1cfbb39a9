import type { Reader } from "../../host/reader.ts";

/** Counts the sockets of flows, so that the process never runs out of descriptors. */
export interface SocketBudget {
  hasRoom(sockets: number): boolean;
  take(sockets: number): void;
  give(sockets: number): void;
}

/** For files, the control socket, name servers, health checks and whatever the runtime opens. */
const RESERVED = 64;
const FALLBACK_LIMIT = 1024;

/** A budget of `limit` descriptors less `used()`, those that listeners hold, and a reserve. */
export function socketBudget(limit: number, used: () => number): SocketBudget {
  let taken = 0;
  return {
    hasRoom: (sockets) => taken + sockets + used() + RESERVED <= limit,
    take: (sockets) => void (taken += sockets),
    give: (sockets) => void (taken -= sockets),
  };
}

/** How many descriptors this process may hold (getrlimit(2), RLIMIT_NOFILE). */
export function descriptorLimit(reader: Reader): number {
  const limit = Number(/^Max open files\s+(\d+)/m.exec(reader.read("/proc/self/limits") ?? "")?.[1]);
  return Number.isInteger(limit) && limit > 0 ? limit : FALLBACK_LIMIT;
}
