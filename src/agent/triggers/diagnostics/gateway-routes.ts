import type { Logger } from "pino";
import type { Clock } from "../../../host/clock.ts";
import type { ClientState, MeshState, PathState } from "../../../protocol/overlay/mesh.ts";
import { GatewayRoutes } from "../../../protocol/triggers/bodies.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";
import { fqdnOf, nameOf, roundedMs, type TunnelNodes, type Tunnels } from "./tunnels.ts";

/** A path to another node, or from another node to this one. `client`: this node dials; `rtt` is in milliseconds. */
export interface GatewayRoute {
  readonly name: string;
  readonly path: string;
  readonly rtt?: number;
  readonly connected: boolean;
  readonly client: boolean;
  readonly udp: boolean;
  readonly ip?: string;
  readonly port?: number;
  readonly receivedMbps: number;
  readonly sentMbps: number;
  readonly bytesReceived: number;
  readonly bytesSent: number;
}

const MAX_ROUTES = 20_000;

/** Lists every path to other nodes with its state, including those that are down. */
export function gatewayRoutes(tunnels: Tunnels, clock: Clock, log: Logger): OneShotTrigger<GatewayRoutes> {
  return {
    event: "gateway-routes",
    kind: "one-shot",
    request: GatewayRoutes,
    deadlineMs: 15_000,
    needsDataPlane: true,
    readOnly: true,
    agents: true,
    async handle({ enableLog }, { signal }) {
      const nodes = tunnels.nodes();
      const mesh = await tunnels.mesh(signal);
      if (enableLog) log.debug({ mesh }, "collected the paths to other nodes");
      return { output: routesOutput(nodes, mesh, clock.now() - (tunnels.countedSince() ?? Infinity)) };
    },
  };
}

/** Builds the reply; bytes were counted for `countedMs`. Pure. */
export function routesOutput(
  nodes: TunnelNodes | undefined,
  mesh: MeshState | undefined,
  countedMs: number,
): Readonly<Record<string, unknown>> {
  const dialled = mesh?.paths.map((path) => [path.gateway, ofPath(nodes, path, countedMs)] as const) ?? [];
  const dialling = mesh?.clients.map((client) => [client.peer, ofClient(nodes, client, countedMs)] as const) ?? [];
  const known = [...dialled, ...dialling, ...absent(nodes, mesh)];
  const routes = known.slice(0, MAX_ROUTES).map(([, route]) => route);
  const connected = new Set(known.filter(([, route]) => route.connected).map(([uid]) => uid)).size;
  return {
    available: known.length,
    connected,
    domains: nodes === undefined ? [] : [{ name: nodes.domain, routes }],
    ...(known.length > MAX_ROUTES ? { truncated: true } : {}),
  };
}

function ofPath(nodes: TunnelNodes | undefined, path: PathState, countedMs: number): GatewayRoute {
  const { gateway, id, state } = path;
  return { ...shared(nodes, gateway, path, countedMs), path: id, connected: state === "up", client: true };
}

function ofClient(nodes: TunnelNodes | undefined, client: ClientState, countedMs: number): GatewayRoute {
  return {
    ...shared(nodes, client.peer, client, countedMs),
    path: "",
    connected: client.state === "up",
    client: false,
  };
}

function shared(
  nodes: TunnelNodes | undefined,
  uid: string,
  { remote, rttMs, bytesIn, bytesOut }: PathState | ClientState,
  countedMs: number,
): Omit<GatewayRoute, "path" | "connected" | "client"> {
  return {
    name: nameOf(fqdnOf(nodes, uid)),
    ...(rttMs === undefined ? {} : { rtt: roundedMs(rttMs) }),
    udp: false,
    ...remote,
    receivedMbps: megabits(bytesIn, countedMs),
    sentMbps: megabits(bytesOut, countedMs),
    bytesReceived: bytesIn,
    bytesSent: bytesOut,
  };
}

const NOTHING = { udp: false, receivedMbps: 0, sentMbps: 0, bytesReceived: 0, bytesSent: 0 };

/** Returns paths that the overlay does not report: it is not running, or the nodes have not connected since it started. */
function absent(nodes: TunnelNodes | undefined, mesh: MeshState | undefined): (readonly [string, GatewayRoute])[] {
  const dialled = new Set(mesh?.paths.map((path) => path.gateway));
  const dialling = new Set(mesh?.clients.map((client) => client.peer));
  const routes: (readonly [string, GatewayRoute])[] = [];
  for (const { uid, fqdn, gateway, mayDial } of nodes?.peers.values() ?? []) {
    const route = { name: nameOf(fqdn), path: "", connected: false, ...NOTHING };
    if (gateway !== undefined && !dialled.has(uid)) {
      routes.push([uid, { ...route, client: true, ip: gateway.host, port: gateway.port }]);
    }
    if (mayDial === true && !dialling.has(uid)) routes.push([uid, { ...route, client: false }]);
  }
  return routes;
}

/** Returns decimal megabits per second with three decimals. */
function megabits(bytes: number, ms: number): number {
  return ms <= 0 || !Number.isFinite(ms) ? 0 : Math.round((bytes * 8) / ms) / 1000;
}
