import type { MeshStanding } from "../../host/overlay/client.ts";
import type { DomainPeer } from "../../protocol/sections/gateway/domain-items.ts";
import type {
  Carrier,
  DataPlaneState,
  GatewayServerView,
  GatewaysReport,
  GatewayView,
  PathView,
  PeersReport,
  PeerSessionView,
  PeerView,
} from "../../protocol/local/mesh.ts";
import type { ClientState, MeshPath, MeshState, OverlayMesh, PathState } from "../../protocol/overlay/mesh.ts";
import type { OverlayState } from "../../protocol/local/overlay.ts";
import type { Issue, Reason } from "../../protocol/documents/reconcile.ts";
import type { DomainView } from "../../protocol/documents/domain-view.ts";
import { defined } from "../../lib/defined.ts";

/** Documents and overlay state about other nodes, at one moment. */
export interface MeshReading {
  readonly overlay: OverlayState;
  readonly domain: DomainView | undefined;
  /** The overlay's table. */
  readonly mesh: OverlayMesh | undefined;
  /** Undefined without an answering overlay; without sessions if not requested. */
  readonly state: MeshStanding | MeshState | undefined;
  /** All reasons. */
  readonly why: readonly Reason[];
}

const MAX_SESSIONS = 64;
const MAX_GRANTS = 64;

/** Summarizes the paths that this node initiates, without those of its clients. Pure. */
export function dataPlaneState(
  mesh: OverlayMesh | undefined,
  standing: Pick<MeshStanding, "paths"> | undefined,
): DataPlaneState {
  const wanted = mesh?.paths.length ?? 0;
  if (wanted === 0) return "none";
  if (standing === undefined) return "unknown";
  const up = standing.paths.filter(({ state }) => state === "up").length;
  return up === 0 ? "down" : up < wanted ? "degraded" : "up";
}

/** Returns the path that carries traffic without a path of its own. Pure. */
export function carrierOf(standing: Pick<MeshStanding, "paths"> | undefined, nameOf: NameOf): Carrier | undefined {
  const path = standing?.paths.find(({ carries, state }) => carries && state === "up");
  if (path === undefined) return undefined;
  const { gateway, id, since, reason } = path;
  return { gateway: nameOf(gateway), path: id, since, ...defined({ reason }) };
}

/** Returns a node's display name by uid. */
export type NameOf = (uid: string) => string;

/** Returns the names of a domain's peers; an unknown one keeps its uid. */
export function namesOf(domain: Pick<DomainView, "peers"> | undefined): NameOf {
  return (uid) => domain?.peers.get(uid)?.name ?? uid;
}

/** Lists gateways that this node dials, and its own. Pure. */
export function gatewaysReport(reading: MeshReading): GatewaysReport {
  const { domain, mesh, state } = reading;
  const states = new Map(state?.paths.map((path) => [`${path.gateway} ${path.id}`, path]));
  const paths = new Map<string, PathView[]>();
  for (const path of mesh?.paths ?? []) {
    const view = pathView(path, states.get(`${path.gateway} ${path.id}`));
    paths.set(path.gateway, [...(paths.get(path.gateway) ?? []), view]);
  }
  const gateways = [...paths].flatMap(([uid, paths]): GatewayView[] => {
    const peer = domain?.peers.get(uid);
    if (peer?.gateway === undefined) return [];
    const { name, fqdn, gateway } = peer;
    return [{ uid, name, fqdn, type: gateway.type, paths }];
  });
  const carrier = carrierOf(state, namesOf(domain));
  const server = serverView(mesh, state);
  return {
    ...common(reading),
    ...defined({ carrier }),
    gateways: gateways.toSorted((a, b) => (a.name < b.name ? -1 : 1)),
    ...defined({ server }),
  };
}

/** Lists all peers of this node. Pure. */
export function peersReport(reading: MeshReading): PeersReport {
  const { domain, mesh, state } = reading;
  const known = new Set(mesh?.peers.map(({ uid }) => uid));
  const clients = new Map(state?.clients.map((client) => [client.peer, client]));
  const sessions = sessionsByPeer(state, namesOf(domain));
  const grants = grantsBySource(mesh);
  const up = new Set(state?.paths.flatMap(({ gateway, state }) => (state === "up" ? [gateway] : [])));
  const peers = [...(domain?.peers.values() ?? [])].filter(({ uid }) => uid !== mesh?.self);
  return {
    ...common(reading),
    peers: peers
      .map((peer) => {
        const { uid } = peer;
        const own = (state?.paths ?? []).filter(({ gateway }) => gateway === uid);
        return peerView(peer, {
          mayBeReached: known.has(uid) && mayBeReached(peer, up, reading),
          paths: own,
          client: clients.get(uid),
          sessions: sessions.get(uid) ?? [],
          grants: grants.get(uid) ?? [],
        });
      })
      .toSorted((a, b) => (a.name < b.name ? -1 : 1)),
  };
}

function common({ overlay, domain, mesh, state, why }: MeshReading) {
  return {
    schema: 1 as const,
    overlay,
    ...(domain === undefined ? {} : { domain: domain.fqdn }),
    dataPlane: dataPlaneState(mesh, state),
    issues: issuesOf(why),
  };
}

function issuesOf(why: readonly Reason[]): Issue[] {
  return why
    .filter(({ section, notice }) => section === "gateway" && notice !== true)
    .slice(0, 100)
    .map(({ item = "gateway", code, message }) => ({ path: item, code, message: message.slice(0, 1024) }));
}

function pathView({ id, host, port, local, isDefault }: MeshPath, state: PathState | undefined): PathView {
  const place = { host, port, ...defined({ local }), isDefault };
  if (state !== undefined) {
    const { gateway: _gateway, ...rest } = state;
    return { ...place, ...rest };
  }
  return { id, ...place, state: "pending", carries: false, loss: 0, attempts: 0, bytesIn: 0, bytesOut: 0 };
}

function serverView(mesh: OverlayMesh | undefined, state: MeshStanding | undefined): GatewayServerView | undefined {
  if (mesh?.server === undefined) return undefined;
  const { port, addresses } = mesh.server;
  const { server, clients } = state ?? NO_SERVER;
  return {
    ...server,
    port,
    addresses,
    clients: clients.filter((client) => client.state === "up").length,
    admitted: mesh.peers.filter(({ mayDial }) => mayDial === true).length,
  };
}

const NO_SERVER: Pick<MeshStanding, "server" | "clients"> = {
  server: { state: "off", reason: "overlay-down", refused: {}, relays: { active: 0, total: 0, bytes: 0 } },
  clients: [],
};

interface PeerParts {
  readonly mayBeReached: boolean;
  readonly paths: readonly PathState[];
  readonly client: ClientState | undefined;
  readonly sessions: readonly PeerSessionView[];
  readonly grants: PeerView["grants"];
}

function peerView({ uid, name, fqdn, type, gateway, mayDial }: DomainPeer, parts: PeerParts): PeerView {
  const { mayBeReached, paths, client, sessions, grants } = parts;
  const tunnels = [...paths, ...(client === undefined ? [] : [client])];
  const up = [...tunnels.filter(({ state }) => state === "up"), ...sessions].map(({ since }) => since);
  const since = up.length > 0 ? Math.min(...up) : latest(tunnels.map(({ since }) => since));
  const { peer: _peer, ...clientView } = client ?? { peer: uid };
  return {
    uid,
    name,
    fqdn,
    type,
    state: up.length > 0 ? "connected" : mayBeReached ? "reachable" : "unreachable",
    ...defined({ since }),
    isGateway: gateway !== undefined,
    mayDial: mayDial === true,
    ...("state" in clientView ? { client: clientView } : {}),
    sessions: sessions.slice(0, MAX_SESSIONS),
    grants: grants.slice(0, MAX_GRANTS),
    ...(grants.length > MAX_GRANTS ? { moreGrants: grants.length - MAX_GRANTS } : {}),
  };
}

/**
 * Reports whether a connected gateway may lead to a peer. Without a route, another gateway has a tunnel only if either is a hub, or one is
 * private and the other public.
 */
function mayBeReached(
  { uid, gateway }: DomainPeer,
  up: ReadonlySet<string>,
  { domain, mesh }: Pick<MeshReading, "domain" | "mesh">,
): boolean {
  if (gateway === undefined) return up.size > 0;
  if (mesh?.routes.some(({ to, via }) => to === uid && up.has(via)) === true) return true;
  return [...up].some((other) => {
    const type = domain?.peers.get(other)?.gateway?.type;
    return type === "hub" || gateway.type === "hub" || (type !== undefined && type !== gateway.type);
  });
}

function latest(times: readonly number[]): number | undefined {
  return times.length === 0 ? undefined : Math.max(...times);
}

function sessionsByPeer(
  state: MeshStanding | MeshState | undefined,
  nameOf: NameOf,
): ReadonlyMap<string, readonly PeerSessionView[]> {
  const byPeer = new Map<string, PeerSessionView[]>();
  if (state === undefined || !("sessions" in state)) return byPeer;
  for (const { peer, gateway, ...rest } of state.sessions) {
    const view = { ...rest, gateway: nameOf(gateway) };
    const own = byPeer.get(peer);
    if (own === undefined) byPeer.set(peer, [view]);
    else own.push(view);
  }
  return byPeer;
}

function grantsBySource(mesh: OverlayMesh | undefined): ReadonlyMap<string, PeerView["grants"]> {
  const bySource = new Map<string, PeerView["grants"]>();
  for (const { source, service, protocol } of mesh?.grants ?? []) {
    const own = bySource.get(source);
    if (own === undefined) bySource.set(source, [{ service, protocol }]);
    else own.push({ service, protocol });
  }
  return bySource;
}
