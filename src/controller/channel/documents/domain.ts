import type { DomainDocument } from "../../../protocol/documents/documents.ts";
import type { DomainGateway, DomainGrant, DomainPeer } from "../../../protocol/sections/gateway/domain-items.ts";
import type { MeshNode, Want } from "./mesh-node.ts";
import { defined } from "../../../lib/defined.ts";

/** Limits of one document. */
export const MAX_PEERS = 10_000;
const MAX_GRANTS = 100_000;

/** Peer entry and grants that one node receives about another. */
interface Share {
  readonly peer: DomainPeer;
  readonly grants: readonly DomainGrant[];
}

/** The active nodes of a domain, indexed by name. */
export interface Domain {
  readonly nodes: ReadonlyMap<string, MeshNode>;
  readonly gateways: readonly MeshNode[];
  /** Nodes by UID, name and FQDN. */
  readonly named: ReadonlyMap<string, readonly MeshNode[]>;
  /** Nodes by the names that their connectors and gateways refer to. */
  readonly calling: ReadonlyMap<string, readonly MeshNode[]>;
  /** Clusters that have members, as keys of domain and cluster name. */
  readonly clusters: ReadonlySet<string>;
}

/** Builds the index; inactive nodes are not in it. Pure. */
export function domainOf(nodes: Iterable<MeshNode>): Domain {
  const all = [...nodes];
  const active = all.filter(({ isActive }) => isActive);
  return {
    nodes: new Map(active.map((node) => [node.uid, node])),
    gateways: active.filter(({ server }) => server !== undefined),
    named: groupBy(active, ({ names }) => names),
    calling: groupBy(active, referencedNames),
    clusters: new Set(all.flatMap(clustersOf)),
  };
}

/**
 * Returns the `domain` document of a node, limited to what it needs: the gateways it dials, the nodes that may dial its own gateway, and
 * both ends of its grants. Empty for an inactive node. Pure; equal nodes give equal text.
 */
export function domainDocument(fqdn: string, self: MeshNode | undefined, domain: Domain): DomainDocument {
  if (self?.isActive !== true) return { fqdn, peers: [], grants: [] };
  const shares = candidates(self, domain)
    .map((other) => shareOf(self, other))
    .filter((share) => share !== undefined);
  const peers = mostNeeded(shares).toSorted((a, b) => (a.peer.uid < b.peer.uid ? -1 : 1));
  const grants = peers.flatMap((share) => share.grants.toSorted(byService));
  const clusters = [...referencedNames(self)].filter((name) => domain.clusters.has(clusterKey(self, name)));
  return {
    fqdn,
    peers: peers.map(({ peer }) => peer),
    grants: grants.slice(0, MAX_GRANTS),
    ...(clusters.length === 0 ? {} : { clusters: clusters.toSorted().slice(0, MAX_PEERS) }),
  };
}

/** Returns the names by which a node's sections refer to others. */
function referencedNames({ wants, mentions }: MeshNode): ReadonlySet<string> {
  return new Set([...wants.keys(), ...mentions]);
}

function clustersOf(node: MeshNode): readonly string[] {
  return node.clusterNames.map((name) => clusterKey(node, name));
}

function clusterKey({ domain }: MeshNode, name: string): string {
  return `${domain} ${name}`;
}

/** Returns the UIDs of nodes whose documents change when one node changes, joins or leaves. Pure. */
export function affectedBy(
  before: MeshNode | undefined,
  after: MeshNode | undefined,
  nodes: Iterable<MeshNode>,
): readonly string[] {
  const affected: string[] = [];
  const all = [...nodes];
  const changed = changedClusters(before, after, all);
  const callsChanged = (node: MeshNode): boolean =>
    changed.size > 0 && node.isActive && [...referencedNames(node)].some((name) => changed.has(clusterKey(node, name)));
  for (const node of all) {
    if (node.uid === before?.uid || node.uid === after?.uid || callsChanged(node)) affected.push(node.uid);
    else if (!isSameShare(shareOf(node, before), shareOf(node, after))) affected.push(node.uid);
  }
  return affected;
}

/** Returns the clusters that gained their first or lost their last member. */
function changedClusters(
  before: MeshNode | undefined,
  after: MeshNode | undefined,
  nodes: readonly MeshNode[],
): ReadonlySet<string> {
  const [was, is] = [before, after].map((node) => (node === undefined ? [] : clustersOf(node)));
  const changed = new Set([...(was ?? []), ...(is ?? [])].filter((key) => was?.includes(key) !== is?.includes(key)));
  if (changed.size === 0) return changed;
  for (const node of nodes) {
    if (node.uid !== before?.uid && node.uid !== after?.uid) for (const key of clustersOf(node)) changed.delete(key);
  }
  return changed;
}

/** Returns the part of `other` that `self` needs; undefined if they share nothing. */
function shareOf(self: MeshNode, other: MeshNode | undefined): Share | undefined {
  if (other === undefined || other.uid === self.uid || other.domain !== self.domain) return undefined;
  if (!self.isActive || !other.isActive) return undefined;
  const gateway = dials(self, other) ? gatewayOf(other) : undefined;
  const mayDial = dials(other, self);
  const given = wantsOf(other, self);
  const isMentioned = other.names.some((name) => self.mentions.has(name));
  if (gateway === undefined && !mayDial && !isMentioned && given.length === 0 && wantsOf(self, other).length === 0) {
    return undefined;
  }
  const { uid, name, fqdn, type, key } = other;
  const peer: DomainPeer = {
    uid,
    name,
    fqdn,
    type,
    key,
    ...defined({ gateway }),
    ...(mayDial ? { mayDial: true as const } : {}),
    ...(mayDial && other.server?.type === "hub" ? { isHub: true as const } : {}),
    ...(mayDial && other.server !== undefined ? { isGateway: true as const } : {}),
  };
  return { peer, grants: given.map(({ service, protocol }) => ({ source: uid, service, protocol })) };
}

/** Reports whether a node dials another's gateway: edges and private gateways dial out, and hubs connect to each other. */
function dials(self: MeshNode, { uid, server }: MeshNode): boolean {
  switch (server?.type) {
    case "private":
      return self.namesWithCluster.some((name) => server.clients.has(name));
    case "public":
      return self.connectToPublic && (self.server === undefined || self.server.type === "private");
    case "hub":
      // One tunnel between two hubs is enough.
      return self.server?.type !== "hub" || self.uid < uid;
    case undefined:
      return false;
  }
}

function gatewayOf({ server }: MeshNode): DomainGateway | undefined {
  if (server === undefined) return undefined;
  const { type, host, port, udpEnabled, udpPort, requestsHops } = server;
  return {
    type,
    host,
    port,
    ...(udpEnabled ? { udpPort } : {}),
    ...(requestsHops ? { requestsHops: true as const } : {}),
  };
}

function wantsOf(source: MeshNode, dest: MeshNode): readonly Want[] {
  if (source.wants.size === 0) return [];
  const found = new Map<string, Want>();
  for (const name of new Set(dest.names)) {
    for (const want of source.wants.get(name) ?? []) found.set(`${want.service} ${want.protocol}`, want);
  }
  return [...found.values()];
}

/**
 * Returns the nodes that may share something with a node: all for a gateway; for an edge, the gateways and the nodes named on either side.
 */
function candidates(self: MeshNode, { nodes, gateways, named, calling }: Domain): readonly MeshNode[] {
  if (self.server !== undefined) return [...nodes.values()];
  const callers = self.names.flatMap((name) => calling.get(name) ?? []);
  const called = [...self.wants.keys()].flatMap((name) => named.get(name) ?? []);
  return [...new Set([...gateways, ...callers, ...called])];
}

/** Limits the peers of a document; gateways that the node dials come first, then peers with grants. */
function mostNeeded(shares: readonly Share[]): readonly Share[] {
  if (shares.length <= MAX_PEERS) return shares;
  const rank = ({ peer, grants }: Share): number => (peer.gateway === undefined ? (grants.length > 0 ? 1 : 2) : 0);
  return shares.toSorted((a, b) => rank(a) - rank(b) || (a.peer.uid < b.peer.uid ? -1 : 1)).slice(0, MAX_PEERS);
}

function isSameShare(a: Share | undefined, b: Share | undefined): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

const byService = (a: DomainGrant, b: DomainGrant): number =>
  `${a.service} ${a.protocol}` < `${b.service} ${b.protocol}` ? -1 : 1;

function groupBy(
  nodes: readonly MeshNode[],
  keysOf: (node: MeshNode) => Iterable<string>,
): ReadonlyMap<string, readonly MeshNode[]> {
  const groups = new Map<string, MeshNode[]>();
  for (const node of nodes) {
    for (const key of keysOf(node)) {
      const group = groups.get(key);
      if (group === undefined) groups.set(key, [node]);
      else group.push(node);
    }
  }
  return groups;
}
