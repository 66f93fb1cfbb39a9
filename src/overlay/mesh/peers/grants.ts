import type { MeshGrant } from "../../../protocol/overlay-mesh.ts";
import { readPlace } from "./wire.ts";

/** What peers may use here. */
export interface Grants {
  has(source: string, service: string, protocol: MeshGrant["protocol"]): boolean;
}

export function grantsOf(grants: readonly MeshGrant[]): Grants {
  const keys = new Set(grants.map(({ source, service, protocol }) => keyOf(source, service, protocol)));
  return { has: (source, service, protocol) => keys.has(keyOf(source, service, protocol)) };
}

function keyOf(source: string, service: string, protocol: string): string {
  return `${source} ${protocol} ${service}`;
}

/** The address that a service names literally, or undefined when it is a name. */
export function literalOf(service: string): { readonly host: string; readonly port: number } | undefined {
  const place = readPlace(service);
  return place === undefined ? undefined : { host: place.ip, port: place.port };
}
