import { isLoopback, plainAddress } from "../../../lib/net/plain-address.ts";
import type { MeshGrant, MeshLiterals } from "../../../protocol/overlay/mesh.ts";
import { sourceFilter } from "../../limits/source-filter.ts";
import { readPlace } from "../transport/wire.ts";

/** Services that peers may use. */
export interface Grants {
  has(source: string, service: string, protocol: MeshGrant["protocol"]): boolean;
}

export function grantsOf(grants: readonly MeshGrant[]): Grants {
  const keys = new Set(grants.map(({ source, service, protocol }) => keyOf(source, service, protocol)));
  return { has: (source, service, protocol) => keys.has(keyOf(source, service, protocol)) };
}

/** Literal addresses that peers may have dialled here, by the local policy. */
export interface LiteralPolicy {
  permits(address: string): boolean;
  /** Reports whether a service is a name or a permitted literal. */
  permitsService(service: string): boolean;
  /** Whether the permitted blocks apply to this machine's own addresses, too. */
  readonly permitsOwn: boolean;
}

export function literalPolicy({ allow, own }: MeshLiterals = { allow: [] }): LiteralPolicy {
  const blocks = sourceFilter(allow);
  const permitsOwn = own === true;
  const permits = (address: string): boolean => {
    const plain = plainAddress(address);
    return blocks.allows(plain) && (permitsOwn || !isLoopback(plain));
  };
  return {
    permits,
    permitsService(service) {
      const literal = literalOf(service);
      return literal === undefined || permits(literal.host);
    },
    permitsOwn,
  };
}

function keyOf(source: string, service: string, protocol: string): string {
  return `${source} ${protocol} ${service}`;
}

/** Returns the address of a literal service; undefined for a name. */
export function literalOf(service: string): { readonly host: string; readonly port: number } | undefined {
  const place = readPlace(service);
  return place === undefined ? undefined : { host: place.ip, port: place.port };
}
