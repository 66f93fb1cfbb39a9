import type { DomainPeer } from "../../../protocol/sections/gateway/domain-items.ts";
import type {
  MeshGrant,
  MeshLiterals,
  MeshPath,
  MeshPeer,
  MeshServer,
  OverlayMesh,
} from "../../../protocol/overlay/mesh.ts";
import type { Gateway, GatewayPath } from "../../../protocol/sections/gateway/gateway.ts";
import type { DomainView } from "../../../protocol/documents/domain-view.ts";
import { defined } from "../../../lib/defined.ts";

/** Inputs of the mesh other than the section: this node, its peers, and its addresses. */
export interface MeshSurroundings {
  readonly isActive: boolean;
  readonly self: { readonly uid: string; readonly name: string; readonly fqdn: string } | undefined;
  /** Absent without a domain document. */
  readonly domain: DomainView | undefined;
  /** This machine's addresses. */
  readonly local: ReadonlySet<string>;
  /** True if the machine has IPv6. */
  readonly hasIpv6: boolean;
  /** Literal addresses that local policy allows to other nodes. */
  readonly literals?: MeshLiterals | undefined;
}

/** Limit of paths in the table. */
const MAX_PATHS = 1024;

/** The gateway server that the overlay has. */
type ServerBefore = MeshServer | undefined;

/**
 * Compiles the mesh part of the overlay's table; undefined if the node is inactive, has no domain, or has neither peers nor a gateway of
 * its own. Pure; the order is stable.
 */
export function compileMesh(
  gateway: Gateway,
  { isActive, self, domain, hasIpv6, literals }: MeshSurroundings,
  before: ServerBefore,
): OverlayMesh | undefined {
  if (!isActive || self === undefined || domain === undefined) return undefined;
  const peers = [...domain.peers.values()].filter(({ uid }) => uid !== self.uid);
  const uidOf = (name: string): string | undefined => (isSelf(self, name) ? self.uid : domain.find(name)?.uid);
  const server = gateway.isServerRejected ? before : serverOf(gateway, uidOf, hasIpv6);
  if (peers.length === 0 && server === undefined) return undefined;
  const { ingressBitsPerSecond, egressBitsPerSecond } = gateway;
  return {
    self: self.uid,
    peers: peers.map(meshPeer).toSorted(by(({ uid }) => uid)),
    paths: pathsOf(gateway, peers, domain).slice(0, MAX_PATHS),
    ...defined({ server }),
    grants: grantsOf(domain),
    ...defined({ literals }),
    routes: gateway.routes.flatMap(({ to, via, metric }) => {
      const [target, through] = [uidOf(to), uidOf(via)];
      return target === undefined || through === undefined ? [] : [{ to: target, via: through, metric }];
    }),
    ...defined({ ingressBitsPerSecond, egressBitsPerSecond }),
  };
}

/** Caches the last result, since a domain may be large and is re-evaluated every minute. */
export function meshCompiler(): typeof compileMesh {
  let last: { readonly of: readonly unknown[]; readonly mesh: OverlayMesh | undefined } | undefined;
  return (gateway, surroundings, before) => {
    const { isActive, self, domain, hasIpv6, literals } = surroundings;
    const of = [gateway, isActive, self, domain, hasIpv6, literals, gateway.isServerRejected ? before : undefined];
    if (last === undefined || !last.of.every((value, index) => value === of[index])) {
      last = { of, mesh: compileMesh(gateway, surroundings, before) };
    }
    return last.mesh;
  };
}

/** Reports whether a name, FQDN or uid is the node's own. */
export function isSelf(self: NonNullable<MeshSurroundings["self"]>, name: string): boolean {
  return [self.uid, self.name, self.fqdn].includes(name);
}

/** Reports whether this node dials a peer. */
export function isDialled({ connectToPublic }: Pick<Gateway, "connectToPublic">, { gateway }: DomainPeer): boolean {
  return gateway !== undefined && (connectToPublic || gateway.type !== "public");
}

/** Returns the first enabled default path to a gateway; it precedes the built-in one. */
function defaultPath(gateway: Gateway, domain: DomainView, uid: string): GatewayPath | undefined {
  return gateway.paths.find(({ enabled, isDefault, node }) => enabled && isDefault && domain.find(node)?.uid === uid);
}

function meshPeer({ uid, fqdn, key, mayDial, isGateway, gateway }: DomainPeer): MeshPeer {
  return {
    uid,
    fqdn,
    key,
    ...defined({ mayDial }),
    ...(gateway?.type === "hub" ? { isHub: true } : {}),
    ...defined({ isGateway }),
  };
}

function pathsOf(gateway: Gateway, peers: readonly DomainPeer[], domain: DomainView): MeshPath[] {
  const paths = peers.flatMap((peer): MeshPath[] => {
    const { uid, gateway: server } = peer;
    if (server === undefined || !isDialled(gateway, peer)) return [];
    const { host, port } = server;
    const first = defaultPath(gateway, domain, uid);
    const own = gateway.paths.filter(({ enabled, node }) => enabled && domain.find(node)?.uid === uid);
    const builtIn = { gateway: uid, id: "", host, port, isDefault: true };
    const others = own.map((path) => meshPath(uid, path, path === first));
    return first === undefined ? [builtIn, ...others] : others;
  });
  return paths.toSorted(by(({ gateway, id }) => `${gateway} ${id}`));
}

function meshPath(gateway: string, { id, host, port, local }: GatewayPath, isDefault: boolean): MeshPath {
  return { gateway, id, host, port, ...defined({ local }), isDefault };
}

function serverOf(
  { server, acls }: Gateway,
  uidOf: (name: string) => string | undefined,
  hasIpv6: boolean,
): MeshServer | undefined {
  if (server === undefined) return undefined;
  const relays = acls?.flatMap((pair) => {
    const [source, dest] = [uidOf(pair.source), uidOf(pair.dest)];
    return source === undefined || dest === undefined ? [] : [{ source, dest }];
  });
  return {
    addresses: hasIpv6 ? ["0.0.0.0", "::"] : ["0.0.0.0"],
    port: server.port,
    ...defined({ relays }),
  };
}

function grantsOf({ grants }: DomainView): MeshGrant[] {
  const unique = new Map(
    grants.map(({ source, service, protocol }) => [`${source} ${protocol} ${service}`, { source, service, protocol }]),
  );
  return [...unique].toSorted(by(([key]) => key)).map(([, grant]) => grant);
}

function by<T>(textOf: (item: T) => string): (a: T, b: T) => number {
  return (a, b) => {
    const [one, other] = [textOf(a), textOf(b)];
    return one < other ? -1 : one > other ? 1 : 0;
  };
}
