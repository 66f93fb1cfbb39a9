import { isIP } from "node:net";
import type { OverlayListener, OverlayReason, OverlayService } from "../../protocol/overlay/overlay.ts";
import type { DialTarget } from "../dial/dial.ts";
import type { OwnSockets } from "../dial/own-sockets.ts";
import type { RemoteTarget } from "./remote.ts";

/** A service of this node with its dial target. */
export interface Offered {
  readonly target: DialTarget;
  readonly idleTimeoutMs: number;
}

/** Protocol and application that a listener expects of a service. */
export type Spoken = Pick<OverlayService, "protocol" | "application">;

/** Resolves the targets of listeners. */
export interface Targets {
  /** Returns the target of a new flow, or why there is none. */
  find(listener: OverlayListener): DialTarget | RemoteTarget | OverlayReason;
  /** Returns a service of this node by name, or why it is unavailable. */
  service(name: string, spoken: Spoken): Offered | OverlayReason;
  /** Returns the reason for which every flow of a listener would fail, as far as it is known without dialling. */
  fault(listener: OverlayListener): OverlayReason | undefined;
}

const LITERAL_CONNECT_TIMEOUT_MS = 5000;

/** Resolves targets from the services of the table; `isDown` reports the result of health checks. */
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
      // Only a flow can find out whether another node is reachable.
      if ("peer" in found) return undefined;
      const { host, port } = found;
      return isIP(host) !== 0 && own.leadsHere(listener.protocol, host, port) ? "loop" : undefined;
    },
  };
}

/** Returns the dial target of a literal address. */
export function literalTarget({ host, port }: { readonly host: string; readonly port: number }): DialTarget {
  const label = `${host}:${port}`;
  return { label, host, port, sourceAddress: undefined, connectTimeoutMs: LITERAL_CONNECT_TIMEOUT_MS };
}
