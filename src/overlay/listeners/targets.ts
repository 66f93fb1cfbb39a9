import { isIP } from "node:net";
import type { OverlayListener, OverlayReason, OverlayService } from "../../protocol/overlay/overlay.ts";
import type { DialTarget } from "../dial/dial.ts";
import type { OwnSockets } from "../dial/own-sockets.ts";
import type { RemoteTarget } from "./remote.ts";

/** A service of this node, as it is dialled. */
export interface Offered {
  readonly target: DialTarget;
  readonly idleTimeoutMs: number;
}

/** What a service must speak to be led to. */
export type Spoken = Pick<OverlayService, "protocol" | "application">;

/** Where listeners lead. */
export interface Targets {
  /** Where a new flow goes, or why it goes nowhere. */
  find(listener: OverlayListener): DialTarget | RemoteTarget | OverlayReason;
  /** A service of this node by its name, or why it cannot be used. */
  service(name: string, spoken: Spoken): Offered | OverlayReason;
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
  const offered = new WeakMap<OverlayService, Offered>();

  const find = (name: string, { protocol, application }: Spoken): Offered | OverlayReason => {
    const service = services.get(name);
    if (service === undefined) return "unknown-service";
    if (service.protocol !== protocol || service.application !== application) return "protocol-mismatch";
    if (service.lacksSource === true) return "unreachable";
    if (isDown(service.name)) return "service-down";
    let found = offered.get(service);
    if (found === undefined) {
      const { name: label, host, port, sourceAddress, connectTimeoutMs, idleTimeoutMs } = service;
      found = { target: { label, host, port, sourceAddress, connectTimeoutMs }, idleTimeoutMs };
      offered.set(service, found);
    }
    return found;
  };
  const targetOf = ({ target, protocol, application }: OverlayListener): DialTarget | RemoteTarget | OverlayReason => {
    const label = "host" in target ? `${target.host}:${target.port}` : target.service;
    if ("peer" in target) return { peer: target.peer, label };
    if ("host" in target) return literalTarget(target);
    const found = find(target.service, { protocol, application });
    return typeof found === "string" ? found : found.target;
  };
  return {
    find: targetOf,
    service: find,
    fault(listener) {
      const found = targetOf(listener);
      if (typeof found === "string") return found === "service-down" ? undefined : found;
      // Whether another node can be reached is for each flow to find out.
      if ("peer" in found) return undefined;
      const { host, port } = found;
      return isIP(host) !== 0 && own.leadsHere(listener.protocol, host, port) ? "loop" : undefined;
    },
  };
}

/** An address taken as it is. */
export function literalTarget({ host, port }: { readonly host: string; readonly port: number }): DialTarget {
  const label = `${host}:${port}`;
  return { label, host, port, sourceAddress: undefined, connectTimeoutMs: LITERAL_CONNECT_TIMEOUT_MS };
}
