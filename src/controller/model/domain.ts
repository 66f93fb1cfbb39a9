import type { DomainDocument } from "../../protocol/documents/documents.ts";
import type { DomainGateway, DomainGrant, DomainPeer } from "../../protocol/sections/gateway/domain-items.ts";
import type { MeshNode, Want } from "./mesh-node.ts";
import { defined } from "../../lib/defined.ts";

/** The most that a document holds of each. */
export const MAX_PEERS = 10_000;
export const MAX_GRANTS = 100_000;

/** What one node must know of another: who it is, and what it may use here. */
interface Share {
  readonly peer: DomainPeer;
  readonly grants: readonly DomainGrant[];
}

/** The nodes of a domain, found by what they are called. */
export interface Domain {
  readonly nodes: ReadonlyMap<string, MeshNode>;
  readonly gateways: readonly MeshNode[];
  /** By UID, name and FQDN. */
  readonly named: ReadonlyMap<string, readonly MeshNode[]>;
  /** By what connectors and gateways call others: who calls them so. */
  readonly calling: ReadonlyMap<string, readonly MeshNode[]>;
  /** The clusters that have members, each by the domain and a name of it. */
  readonly clusters: ReadonlySet<string>;
}

/** Lists who is called what; nodes that are not active are nobody's business. Pure. */
export function domainOf(nodes: Iterable<MeshNode>): Domain {
  const all = [...nodes];
  const active = all.filter(({ isActive }) => isActive);
  return {
    nodes: new Map(active.map((node) => [node.uid, node])),
    gateways: active.filter(({ server }) => server !== undefined),
    named: groupBy(active, ({ names }) => names),
    calling: groupBy(active, calledBy),
    clusters: new Set(all.flatMap(clustersOf)),
  };
}

/**
 * The body of what a node must know of its domain, and no more: the gateways it dials, who may dial its own, and both ends of grants.
 * Nothing for a node that is not active. Pure; the same nodes give the same text.
 */
export function domainDocument(fqdn: string, self: MeshNode | undefined, domain: Domain): DomainDocument {
  if (self?.isActive !== true) return { fqdn, peers: [], grants: [] };
  const shares = candidates(self, domain)
    .map((other) => shareOf(self, other))
    .filter((share) => share !== undefined);
  const peers = mostNeeded(shares).toSorted((a, b) => (a.peer.uid < b.peer.uid ? -1 : 1));
  const grants = peers.flatMap((share) => share.grants.toSorted(byService));
  const clusters = [...calledBy(self)].filter((name) => domain.clusters.has(clusterKey(self, name)));
  return {
    fqdn,
    peers: peers.map(({ peer }) => peer),
    grants: grants.slice(0, MAX_GRANTS),
    ...(clusters.length === 0 ? {} : { clusters: clusters.toSorted().slice(0, MAX_PEERS) }),
  };
}

/** Names by which the sections of a node refer to others. */
function calledBy({ wants, mentions }: MeshNode): ReadonlySet<string> {
  return new Set([...wants.keys(), ...mentions]);
}

function clustersOf(node: MeshNode): readonly string[] {
  return node.clusterNames.map((name) => clusterKey(node, name));
}

function clusterKey({ domain }: MeshNode, name: string): string {
  return `${domain} ${name}`;
}

/** Whose documents differ when one node becomes another, or comes or goes: the node's own, and of those that share something with it. Pure. */
export function affectedBy(
  before: MeshNode | undefined,
  after: MeshNode | undefined,
  nodes: Iterable<MeshNode>,
): readonly string[] {
  const affected: string[] = [];
  const all = [...nodes];
  const changed = changedClusters(before, after, all);
  const callsChanged = (node: MeshNode): boolean =>
    changed.size > 0 && node.isActive && [...calledBy(node)].some((name) => changed.has(clusterKey(node, name)));
  for (const node of all) {
    if (node.uid === before?.uid || node.uid === after?.uid || callsChanged(node)) affected.push(node.uid);
    else if (!isSameShare(shareOf(node, before), shareOf(node, after))) affected.push(node.uid);
  }
  return affected;
}

/** The clusters that came with their first member, or went with their last. */
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

/** What `self` must know of `other`; undefined when it has no business with it. */
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

/** Whether a node dials another's gateway: edges and private gateways dial outwards, and gateways meet at hubs. */
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

/** Whoever may share something with a node: for an edge the gateways and who is named on either side, for a gateway everybody. */
function candidates(self: MeshNode, { nodes, gateways, named, calling }: Domain): readonly MeshNode[] {
  if (self.server !== undefined) return [...nodes.values()];
  const callers = self.names.flatMap((name) => calling.get(name) ?? []);
  const called = [...self.wants.keys()].flatMap((name) => named.get(name) ?? []);
  return [...new Set([...gateways, ...callers, ...called])];
}

/** Beyond what a document holds, whom the node dials and who may use something here go first. */
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
