import { isDeepStrictEqual } from "node:util";
import { firewallDigest } from "../../../host/network/firewall/firewall.ts";
import type { SourceFilterState } from "../../../host/network/firewall/source-filter.ts";
import type { ListenerState, OverlayListener, OverlayReason } from "../../../protocol/overlay/overlay.ts";
import { clusterText, unknownNodeText } from "../../../protocol/documents/own-name.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import { forbiddenTargets } from "../../../protocol/sections/connectors/targets.ts";
import { takenBy, type Connector } from "../../../protocol/sections/connectors/connectors.ts";
import { applicationOf } from "../../../protocol/sections/common/fields.ts";
import { sourceFilter } from "./source-filter.ts";
import { defined } from "../../../lib/defined.ts";

/** The overlay's listeners, and this machine's IPv4 addresses by link, its primary one first. */
export interface ConnectorsActual {
  readonly listeners: ReadonlyMap<string, OverlayListener>;
  readonly states: ReadonlyMap<string, ListenerState>;
  readonly addresses: ReadonlyMap<string, readonly string[]>;
  /** The node of each destination, as written: this node, a peer's uid, or undefined if unknown. */
  readonly nodes: Nodes;
  /** nftables table that drops other sources before they connect; absent if unsupported. */
  readonly filter?: SourceFilterState;
}

/** Nodes that connectors may lead to. */
export interface Nodes {
  /** Finds one by its name, FQDN or uid. */
  find(node: string): "here" | { readonly peer: string } | undefined;
  /** Returns the display name of a peer. */
  nameOf(uid: string): string;
  /** Reports whether a name is that of a cluster, which is unsupported as a destination. */
  isCluster(node: string): boolean;
}

/** Peers of a domain, with the fields used here. */
export interface Peers {
  readonly peers: ReadonlyMap<string, { readonly name: string }>;
  readonly clusters: ReadonlySet<string>;
  find(name: string): { readonly uid: string } | undefined;
}

/** Finds this node first, then peers of the domain. */
export function nodesOf(isHere: (node: string) => boolean, domain: Peers | undefined): Nodes {
  return {
    find(node) {
      if (isHere(node)) return "here";
      const peer = domain?.find(node);
      return peer === undefined ? undefined : { peer: peer.uid };
    },
    nameOf: (uid) => domain?.peers.get(uid)?.name ?? uid,
    isCluster: (node) => domain?.clusters.has(node) === true,
  };
}

interface Listens {
  readonly subject: string;
  readonly guarded: false;
  readonly listener: OverlayListener;
}

/** Limit of addresses per connector. */
const MAX_ADDRESSES = 256;

const OF_TARGET: ReadonlySet<OverlayReason> = new Set([
  "loop",
  "unknown-service",
  "protocol-mismatch",
  "unreachable",
  "no-path",
  "peer-absent",
  "peer-unproven",
  "not-granted",
  "literal-not-permitted",
  "relay-refused",
  "service-down",
]);

/** Loads the table that drops other sources before they connect. */
export interface FilterStep {
  readonly kind: "filter";
  readonly subject: "source-filter";
  readonly guarded: false;
  /** Undefined deletes the table. */
  readonly text?: string;
}

export type ConnectorStep =
  | FilterStep
  | ({ readonly kind: "listen" | "change" | "rename" } & Listens)
  | ({ readonly kind: "move"; readonly from: string } & Listens)
  | {
      readonly kind: "close";
      readonly subject: string;
      readonly guarded: false;
      readonly removes: true;
      readonly key: string;
    };

/**
 * Plans the listeners to close, move, change and open; an unchanged one keeps its socket and flows. Of two connectors at one address of the
 * machine the earlier one gets it.
 */
export function planConnectors(desired: readonly Connector[], actual: ConnectorsActual): readonly ConnectorStep[] {
  const wanted = listenersOf(desired, actual);
  const keys = new Set(wanted.map(({ key }) => key));
  const unwanted = [...actual.listeners.values()].filter(({ key }) => !keys.has(key));
  const left = new Map(unwanted.map((listener) => [originOf(listener), listener]));
  const moved = new Set<string>();
  const steps = wanted.flatMap((listener): ConnectorStep[] => {
    const subject = listener.connector;
    const before = actual.listeners.get(listener.key);
    if (before !== undefined) {
      if (isDeepStrictEqual(before, listener)) return [];
      const isRenamed = isDeepStrictEqual({ ...before, connector: subject }, listener);
      return [{ kind: isRenamed ? "rename" : "change", subject, guarded: false, listener }];
    }
    // A listener that only moves is one step, so that its flows survive.
    const from = left.get(originOf(listener))?.key;
    left.delete(originOf(listener));
    if (from !== undefined) moved.add(from);
    return [
      from === undefined
        ? { kind: "listen", subject, guarded: false, listener }
        : { kind: "move", subject, guarded: false, listener, from },
    ];
  });
  const gone = unwanted
    .filter(({ key }) => !moved.has(key))
    .map(({ key, connector }) => ({ kind: "close", subject: connector, guarded: false, removes: true, key }) as const);
  return [...gone, ...steps, ...filterSteps(wanted, actual)];
}

/** Returns the overlay's entries for connectors that have an address. */
export function listenersOf(
  desired: readonly Connector[],
  actual: Pick<ConnectorsActual, "addresses" | "nodes">,
): readonly OverlayListener[] {
  return placesOf(desired, actual).flatMap(({ connector, at }) => compileConnector(connector, at, actual.nodes));
}

function filterSteps(wanted: readonly OverlayListener[], { filter }: ConnectorsActual): readonly FilterStep[] {
  if (filter === undefined || filter.unusable !== undefined) return [];
  const text = sourceFilter(wanted);
  const digest = text === undefined ? undefined : firewallDigest(text);
  if (digest === filter.digest) return [];
  return [{ kind: "filter", subject: "source-filter", guarded: false, ...defined({ text }) }];
}

/** Lists connectors whose other sources are closed only after they connect. */
export function lateFilters(desired: readonly Connector[], { filter }: ConnectorsActual): readonly Issue[] {
  const reason = filter?.unusable;
  if (reason === undefined) return [];
  return desired
    .filter(({ enabled, sources }) => enabled && sources !== undefined)
    .map(({ path }) => {
      const at = `${path}.sourceBlock`;
      const text = `nftables does not drop other sources; they are closed once they have connected: ${reason}`;
      return { path: at, code: "not-filtered", message: `${at}: ${text}`.slice(0, 1024) };
    });
}

function originOf({ connector, protocol, port }: OverlayListener): string {
  return `${protocol} ${port} ${connector}`;
}

/** Addresses of a connector, and those that an earlier connector has. */
interface Place {
  readonly connector: Connector;
  readonly at: readonly string[];
  /** Lost addresses by the connector that has them. */
  readonly lost: ReadonlyMap<string, readonly string[]>;
}

/** Assigns each address to the first connector that asks for it with the same port and transport. */
function placesOf(
  desired: readonly Connector[],
  { addresses, nodes }: Pick<ConnectorsActual, "addresses" | "nodes">,
): readonly Place[] {
  const owners = new Map<string, string>();
  const leading = desired.filter((connector) => connector.enabled && nodes.find(connector.node) !== undefined);
  return leading.map((connector) => {
    const { id, transport, port, listen } = connector;
    const at: string[] = [];
    const lost = new Map<string, string[]>();
    for (const address of new Set(addressesOf(listen, addresses).slice(0, MAX_ADDRESSES))) {
      const place = `${transport} ${port} ${address}`;
      const owner = owners.get(place);
      if (owner === undefined) {
        owners.set(place, id);
        at.push(address);
      } else lost.set(owner, [...(lost.get(owner) ?? []), address]);
    }
    return { connector, at, lost };
  });
}

/**
 * Returns the overlay's entry for a connector, keyed by its listening address, so that a new id does not close it; none without an address.
 */
function compileConnector(connector: Connector, at: readonly string[], nodes: Nodes): OverlayListener[] {
  const { id, transport, port, sources, bitsPerSecond, maxFlows, idleTimeoutMs } = connector;
  const application = applicationOf(connector.protocol);
  const target = leadsTo(connector, nodes);
  if (at.length === 0 || target === undefined) return [];
  const entry: OverlayListener = {
    key: keyOf(connector),
    connector: id,
    protocol: transport,
    ...defined({ application }),
    addresses: [...at],
    port,
    target,
    ...(sources === undefined ? {} : { sources: [...sources] }),
    ...defined({ bitsPerSecond }),
    maxFlows,
    idleTimeoutMs,
  };
  return [entry];
}

/** Returns the target of a connector's flows; undefined if its node is unknown. */
function leadsTo({ node, target }: Connector, nodes: Nodes): OverlayListener["target"] | undefined {
  const found = nodes.find(node);
  if (found === undefined) return undefined;
  return found === "here" ? target : { peer: found.peer, ...target };
}

/** Returns the overlay's key of a connector's listener. */
export function keyOf({ transport, port, listen }: Connector): string {
  switch (listen.at) {
    case "any":
      return `${transport}/any/${port}`;
    case "address":
      return `${transport}/${listen.address}/${port}`;
    case "nic":
      return `${transport}/nic:${listen.nic}/${port}`;
  }
}

/** Lists connectors that should listen but do not, or that no flow can pass. */
export function waitingConnectors(desired: readonly Connector[], actual: ConnectorsActual): readonly Issue[] {
  const enabled = desired.filter((connector) => connector.enabled);
  const forbidden = forbiddenTargets(enabled, (node) => actual.nodes.find(node) === "here");
  const ids = new Set(forbidden.map(({ id }) => id));
  return [
    ...forbidden.map(({ path, code, message }) => ({ path, code, message })),
    ...unknownNodes(
      enabled.filter(({ id }) => !ids.has(id)),
      actual.nodes,
    ),
    ...placesOf(desired, actual).flatMap((place) => (ids.has(place.connector.id) ? [] : waitingAt(place, actual))),
  ];
}

/** Lists enabled connectors whose node is neither this one nor a peer. */
function unknownNodes(desired: readonly Connector[], nodes: Nodes): readonly Issue[] {
  return desired
    .filter((connector) => connector.enabled && nodes.find(connector.node) === undefined)
    .map(({ path, node }) => {
      const at = `${path}.node`;
      return nodes.isCluster(node)
        ? { path: at, code: "unsupported", message: `${at}: ${clusterText(node)}` }
        : { path: at, code: "unknown-node", message: `${at}: ${unknownNodeText(node)}` };
    });
}

function waitingAt({ connector, at: bound, lost }: Place, actual: ConnectorsActual): Issue[] {
  const { path, listen } = connector;
  const collisions = collisionsOf(connector, lost);
  const at = `${path}.nic`;
  const count = addressesOf(listen, actual.addresses).length;
  if (listen.at === "nic" && count === 0) {
    return [{ path: at, code: "address-absent", message: `${at}: ${listen.nic} has no IPv4 address` }];
  }
  if (listen.at === "nic" && count > MAX_ADDRESSES) {
    const text = `${listen.nic} has ${count} IPv4 addresses; only the first ${MAX_ADDRESSES} are listened on`;
    return collisions.concat({ path: at, code: "too-many-addresses", message: `${at}: ${text}` });
  }
  const state = actual.states.get(keyOf(connector));
  if (bound.length === 0 || state?.state !== "failed") return collisions;
  const { reason = "other" } = state;
  const target = actual.listeners.get(state.key)?.target;
  const wanted = leadsTo(connector, actual.nodes);
  // Results of an earlier target do not apply to this one.
  if (OF_TARGET.has(reason) && target !== undefined && !isDeepStrictEqual(target, wanted)) return collisions;
  return collisions.concat({ path, code: reason, message: `${path}: ${explain(connector, reason, state.message)}` });
}

/** Limit of addresses named in a message. */
const NAMED_ADDRESSES = 4;

function collisionsOf({ path, transport, port }: Connector, lost: Place["lost"]): Issue[] {
  const at = `${path}.port`;
  return [...lost].map(([owner, addresses]) => {
    const more = addresses.length > NAMED_ADDRESSES ? ` and ${addresses.length - NAMED_ADDRESSES} more` : "";
    const place = `${transport} ${port} on ${addresses.slice(0, NAMED_ADDRESSES).join(", ")}${more}`;
    return { path: at, code: "E_PORT_IN_USE", message: `${at}: ${takenBy(place, owner)}` };
  });
}

function addressesOf(listen: Connector["listen"], byLink: ConnectorsActual["addresses"]): readonly string[] {
  switch (listen.at) {
    case "any":
      return ["0.0.0.0"];
    case "address":
      return [listen.address];
    case "nic":
      // Sorted, so that a link that flaps does not look like a change.
      return (byLink.get(listen.nic) ?? []).toSorted();
  }
}

function explain(
  { port, protocol, transport, target, node }: Connector,
  reason: OverlayReason,
  detail: string | undefined,
): string {
  const to = "service" in target ? target.service : `${target.host}:${target.port}`;
  const because = detail === undefined ? "" : ` (${detail})`;
  switch (reason) {
    case "address-in-use":
      return `${transport} ${port} is taken by another program${because}`;
    case "address-absent":
      return `the address to listen on is not on this machine${because}`;
    case "permission-denied":
      return `listening on ${transport} ${port} is not permitted${because}`;
    case "out-of-resources":
      return detail === undefined
        ? "new connections are refused: the overlay has no descriptors or source ports left"
        : `the machine has no free sockets${because}`;
    case "loop":
      return `${to} leads back to a listener of this overlay`;
    case "unknown-service":
      return `there is no service ${to} on ${node === "local" ? "this node" : node}, or it is disabled`;
    case "service-down":
      return `the service ${to} on ${node} does not answer its health checks`;
    case "protocol-mismatch":
      return `the service ${to} is not ${protocol}`;
    case "unreachable":
      return `the service ${to} cannot be reached${because}`;
    case "no-path":
      return `no path to any gateway is up${because}`;
    case "peer-absent":
      return `no gateway that is up has ${node}${because}`;
    case "peer-unproven":
      return `the node that answered is not ${node}${because}`;
    case "not-granted":
      return `${node} does not grant ${to} to this node${because}`;
    case "literal-not-permitted":
      return `${node} does not permit connectors to the address ${to}; name a service there, or list the address in services.allowAddresses of its agent.json${because}`;
    case "relay-refused":
      return `no gateway may relay to ${node}${because}`;
    case "tunnel-lost":
      return `the tunnel to ${node} ended${because}`;
    default:
      return `${reason}${because}`;
  }
}
