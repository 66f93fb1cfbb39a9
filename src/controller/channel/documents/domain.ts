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

/** The nodes of a controller, indexed by the names that relate them. Inactive nodes count as members of their clusters only. */
export class Domain {
  /** Active nodes by UID. */
  readonly #nodes = new Map<string, MeshNode>();
  /** Those of them that serve as gateways. */
  readonly #gateways = new Map<string, MeshNode>();
  /** Active nodes by UID, name and FQDN. */
  readonly #named = new Groups();
  /** Active nodes by the names that their connectors and gateways refer to. */
  readonly #calling = new Groups();
  /** Number of members by domain and cluster name. */
  readonly #members = new Map<string, number>();

  constructor(nodes: Iterable<MeshNode> = []) {
    for (const node of nodes) this.replace(undefined, node);
  }

  /** Replaces a node that is indexed by one of the same UID; undefined stands for none. */
  replace(before: MeshNode | undefined, after: MeshNode | undefined): void {
    if (before !== undefined) {
      for (const key of clustersOf(before)) this.#count(key, -1);
      for (const name of before.names) this.#named.remove(name, before);
      for (const name of referencedNames(before)) this.#calling.remove(name, before);
      if (after?.isActive !== true) this.#nodes.delete(before.uid);
      this.#gateways.delete(before.uid);
    }
    if (after === undefined) return;
    for (const key of clustersOf(after)) this.#count(key, 1);
    if (!after.isActive) return;
    this.#nodes.set(after.uid, after);
    if (after.server !== undefined) this.#gateways.set(after.uid, after);
    for (const name of after.names) this.#named.add(name, after);
    for (const name of referencedNames(after)) this.#calling.add(name, after);
  }

  get(uid: string): MeshNode | undefined {
    return this.#nodes.get(uid);
  }

  /** Returns the active nodes that may share something with a node: all for a gateway; for an edge, the gateways and the nodes named on either side. */
  candidatesOf(node: MeshNode): Iterable<MeshNode> {
    if (node.server !== undefined) return this.#nodes.values();
    const callers = node.names.flatMap((name) => this.callersOf(name));
    const called = [...node.wants.keys()].flatMap((name) => this.#named.of(name));
    return new Set([...this.#gateways.values(), ...callers, ...called]);
  }

  /** Returns the active nodes whose connectors or gateways refer to a name. */
  callersOf(name: string): readonly MeshNode[] {
    return this.#calling.of(name);
  }

  /** Returns the number of members of a cluster, by one of its names in the domain of a node. */
  membersOf(node: MeshNode, name: string): number {
    return this.#members.get(clusterKey(node, name)) ?? 0;
  }

  #count(key: string, by: number): void {
    const count = (this.#members.get(key) ?? 0) + by;
    if (count === 0) this.#members.delete(key);
    else this.#members.set(key, count);
  }
}

/** Nodes by a name that several may share. */
class Groups {
  readonly #groups = new Map<string, Map<string, MeshNode>>();

  of(name: string): readonly MeshNode[] {
    return [...(this.#groups.get(name)?.values() ?? [])];
  }

  add(name: string, node: MeshNode): void {
    const group = this.#groups.get(name) ?? new Map<string, MeshNode>();
    this.#groups.set(name, group.set(node.uid, node));
  }

  remove(name: string, { uid }: MeshNode): void {
    const group = this.#groups.get(name);
    group?.delete(uid);
    if (group?.size === 0) this.#groups.delete(name);
  }
}

/**
 * Returns the `domain` document of a node, limited to what it needs: the gateways it dials, the nodes that may dial its own gateway, and
 * both ends of its grants. Empty for an inactive node. Pure; equal nodes give equal text.
 */
export function domainDocument(fqdn: string, self: MeshNode | undefined, domain: Domain): DomainDocument {
  if (self?.isActive !== true) return { fqdn, peers: [], grants: [] };
  const shares = [...domain.candidatesOf(self)]
    .map((other) => shareOf(self, other))
    .filter((share) => share !== undefined);
  const peers = mostNeeded(shares).toSorted((a, b) => (a.peer.uid < b.peer.uid ? -1 : 1));
  const grants = peers.flatMap((share) => share.grants.toSorted(byService));
  const clusters = [...referencedNames(self)].filter((name) => domain.membersOf(self, name) > 0);
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

/** Returns the UIDs of nodes whose documents change when one node changes, joins or leaves; `domain` has the node as it is afterwards. Pure. */
export function affectedBy(
  before: MeshNode | undefined,
  after: MeshNode | undefined,
  domain: Domain,
): readonly string[] {
  const affected = new Set<string>();
  for (const node of [before, after]) {
    for (const other of node === undefined ? [] : domain.candidatesOf(node)) {
      if (!isSameShare(shareOf(other, before), shareOf(other, after))) affected.add(other.uid);
    }
  }
  for (const [node, name] of changedClusters(before, after, domain)) {
    for (const other of domain.callersOf(name)) if (other.domain === node.domain) affected.add(other.uid);
  }
  if (after !== undefined) affected.add(after.uid);
  return [...affected];
}

/** Returns the names of clusters that gained their first or lost their last member, each with that member. */
function changedClusters(
  before: MeshNode | undefined,
  after: MeshNode | undefined,
  domain: Domain,
): readonly (readonly [MeshNode, string])[] {
  const [was, is] = [before, after].map((node) => new Set(node === undefined ? [] : clustersOf(node)));
  const namesOf = (node: MeshNode | undefined) => node?.clusterNames.map((name) => [node, name] as const) ?? [];
  return [
    ...namesOf(before).filter(
      ([node, name]) => is?.has(clusterKey(node, name)) !== true && domain.membersOf(node, name) === 0,
    ),
    ...namesOf(after).filter(
      ([node, name]) => was?.has(clusterKey(node, name)) !== true && domain.membersOf(node, name) === 1,
    ),
  ];
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
