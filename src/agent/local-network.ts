import type { Overlay } from "../host/overlay.ts";
import type { ProxySettings } from "../lib/proxy.ts";
import { withinTime } from "../lib/within-time.ts";
import type { GatewayPathView, GatewaysReport, NetworkTargets, PeersReport } from "../protocol/local-network.ts";
import type { OverlayState } from "../protocol/local-overlay.ts";
import type { MeshPath, MeshState, OverlayMesh } from "../protocol/overlay-mesh.ts";
import type { Reason } from "../protocol/reconcile.ts";
import type { Applying } from "./applying.ts";
import type { Registration } from "./identity/identity.ts";
import type { LocalProvider } from "./local-api/provider.ts";
import { overlayStateOf } from "./overlay-reading.ts";
import { fqdnOf, type TunnelNodes, type Tunnels } from "./triggers/tunnels.ts";

export interface LocalNetworkDeps {
  readonly overlay: Pick<Overlay, "status" | "view" | "mesh">;
  readonly tunnels: Pick<Tunnels, "nodes">;
  readonly applying: Pick<Applying, "why">;
  readonly registration: () => Registration | undefined;
  readonly proxies: ProxySettings;
}

/** What is asked for, and what the overlay says of it. */
export interface NetworkReading {
  readonly overlay: OverlayState;
  readonly mesh: OverlayMesh | undefined;
  /** Undefined while no overlay answers. */
  readonly state: MeshState | undefined;
  readonly nodes: TunnelNodes | undefined;
  readonly reasons: readonly Reason[];
}

/** Less than callers wait for us. */
const OVERLAY_ANSWER_MS = 3000;

/** What the local API tells of gateways, other nodes, and the way to them. */
export function localNetwork(deps: LocalNetworkDeps): Pick<LocalProvider, "gateways" | "peers" | "targets"> {
  const { overlay, tunnels, applying, registration, proxies } = deps;
  async function read(signal: AbortSignal): Promise<NetworkReading> {
    let failure: string | undefined;
    const state = await overlay.mesh(withinTime(signal, OVERLAY_ANSWER_MS)).catch((error: unknown) => {
      signal.throwIfAborted();
      failure = error instanceof Error && error.name !== "TimeoutError" ? error.message : "it does not answer";
      return undefined;
    });
    const standing = overlayStateOf(overlay.status());
    const silence = standing.state === "up" && failure !== undefined ? { reason: failure.slice(0, 1024) } : {};
    return {
      overlay: { ...standing, ...silence },
      mesh: overlay.view.mesh,
      state,
      nodes: tunnels.nodes(),
      reasons: applying.why().reasons,
    };
  }
  return {
    gateways: async (signal) => gatewaysReport(await read(signal)),
    peers: async (signal) => peersReport(await read(signal)),
    targets: () => networkTargets(registration(), proxies, overlay.view.mesh, tunnels.nodes()),
  };
}

/** Every path that is asked for or that the overlay tells of, and this node's own gateway. Pure. */
export function gatewaysReport({ overlay, mesh, state, nodes, reasons }: NetworkReading): GatewaysReport {
  const known = new Map(state?.paths.map((path) => [idOf(path), path]));
  const wanted = new Map(mesh?.paths.map((path) => [idOf(path), path]));
  const shown = [...wanted.values(), ...[...known.values()].filter((path) => !wanted.has(idOf(path)))];
  const viewOf = (path: Wanted): GatewayPathView => {
    const want = wanted.get(idOf(path));
    const place = want === undefined ? {} : { host: want.host, port: want.port };
    const local = want?.local === undefined ? {} : { local: want.local };
    const standing = known.get(idOf(path)) ?? unknownPath(path, overlay);
    return { ...standing, name: fqdnOf(nodes, path.gateway), ...place, ...local };
  };
  const server = mesh?.server;
  const isServing = server !== undefined || (state !== undefined && state.server.state !== "off");
  const standing = state?.server ?? UNKNOWN_SERVER;
  return {
    schema: 1,
    overlay,
    reasons: reasons
      .filter(({ section }) => section === "gateway")
      .slice(0, 100)
      .map(({ code, message }) => ({ code: code.slice(0, 64), message: message.slice(0, 2048) })),
    paths: shown.map(viewOf),
    ...(isServing
      ? { server: { ...standing, ...(server === undefined ? {} : { addresses: server.addresses, port: server.port }) } }
      : {}),
  };
}

/** Who dials this node's gateway, and the sessions with other nodes. Pure. */
export function peersReport({ overlay, state, nodes }: NetworkReading): PeersReport {
  return {
    schema: 1,
    overlay,
    clients: state?.clients.map((client) => ({ ...client, name: fqdnOf(nodes, client.peer) })) ?? [],
    sessions:
      state?.sessions.map((session) => ({
        ...session,
        name: fqdnOf(nodes, session.peer),
        gatewayName: fqdnOf(nodes, session.gateway),
      })) ?? [],
  };
}

/** Whom a node must reach: its control plane, by which proxy, and every path to a gateway. Pure. */
export function networkTargets(
  registration: Registration | undefined,
  { https, noProxy }: ProxySettings,
  mesh: OverlayMesh | undefined,
  nodes: TunnelNodes | undefined,
): NetworkTargets {
  const peers = new Map(mesh?.peers.map((peer) => [peer.uid, peer]));
  return {
    schema: 1,
    ...(registration === undefined
      ? {}
      : {
          controlPlane: {
            url: registration.controlPlane.iss,
            session: registration.node.session,
            pins: registration.controlPlane.keys.spki,
          },
        }),
    ...(https === undefined ? {} : { proxy: { url: https.href, noProxy: [...noProxy] } }),
    paths:
      mesh?.paths.map((path) => {
        const peer = peers.get(path.gateway);
        const name = peer?.fqdn ?? fqdnOf(nodes, path.gateway);
        return { ...path, name, ...(peer === undefined ? {} : { key: peer.key }) };
      }) ?? [],
  };
}

const UNKNOWN_SERVER: MeshState["server"] = {
  state: "off",
  refused: {},
  relays: { active: 0, total: 0, bytes: 0 },
};

type Wanted = Pick<MeshPath, "gateway" | "id">;

const idOf = ({ gateway, id }: Wanted): string => `${gateway} ${id}`;

/** A path that nobody says anything of. */
function unknownPath({ gateway, id }: Wanted, overlay: OverlayState): GatewayPathView {
  const why =
    overlay.reason ?? (overlay.state === "up" ? "the overlay does not tell of it" : "the overlay is not running");
  const nothing = { carries: false, loss: 0, attempts: 0, bytesIn: 0, bytesOut: 0 };
  return { gateway, id, name: gateway, state: "down", since: overlay.since, reason: why.slice(0, 512), ...nothing };
}
