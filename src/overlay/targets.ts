import { isIP } from "node:net";
import type { OverlayListener, OverlayReason, OverlayService } from "../protocol/overlay.ts";
import type { DialTarget } from "./dial.ts";
import type { OwnSockets } from "./own-sockets.ts";

/** Where listeners lead. */
export interface Targets {
  /** Where a new flow goes, or why it goes nowhere. */
  find(listener: OverlayListener): DialTarget | OverlayReason;
  /** What keeps every flow of a listener from succeeding, as far as it can be told without dialling. */
  fault(listener: OverlayListener): OverlayReason | undefined;
}

const LITERAL_CONNECT_TIMEOUT_MS = 5000;

/** Targets by the services of the table; `isDown` tells what health checks found. */
export function targetsOf(
  services: ReadonlyMap<string, OverlayService>,
  isDown: (name: string) => boolean,
  own: OwnSockets,
): Targets {
  const dialled = new WeakMap<OverlayService, DialTarget>();

  const find = (listener: OverlayListener): DialTarget | OverlayReason => {
    const { target, protocol } = listener;
    if ("host" in target) return literal(target);
    const service = services.get(target.service);
    if (service === undefined) return "unknown-service";
    if (service.protocol !== protocol) return "protocol-mismatch";
    if (service.lacksSource === true) return "unreachable";
    if (isDown(service.name)) return "service-down";
    let found = dialled.get(service);
    if (found === undefined) {
      const { name: label, host, port, sourceAddress, connectTimeoutMs } = service;
      found = { label, host, port, sourceAddress, connectTimeoutMs };
      dialled.set(service, found);
    }
    return found;
  };
  return {
    find,
    fault(listener) {
      const found = find(listener);
      if (typeof found === "string") return found === "service-down" ? undefined : found;
      const { host, port } = found;
      return isIP(host) !== 0 && own.leadsHere(listener.protocol, host, port) ? "loop" : undefined;
    },
  };
}

function literal({ host, port }: { readonly host: string; readonly port: number }): DialTarget {
  const label = `${host}:${port}`;
  return { label, host, port, sourceAddress: undefined, connectTimeoutMs: LITERAL_CONNECT_TIMEOUT_MS };
}
