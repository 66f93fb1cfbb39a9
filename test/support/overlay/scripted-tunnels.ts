import { SessionError } from "../../../src/errors.ts";
import type {
  EchoAnswer,
  EchoRequest,
  TunnelNodes,
  TunnelPeer,
  Tunnels,
  UploadAnswer,
  UploadProgress,
  UploadRequest,
} from "../../../src/agent/triggers/diagnostics/tunnels.ts";
import type { ClientState, MeshPath, MeshState, PathState } from "../../../src/protocol/overlay/mesh.ts";

const uid = (digit: string): string => `0197f1a2-0000-7000-8000-00000000000${digit}`;
export const EDGE_1 = uid("1");
export const EDGE_2 = uid("2");
export const GATEWAY_1 = uid("a");
export const GATEWAY_2 = uid("b");

/** Peers by their uid. */
export function peersOf(peers: readonly TunnelPeer[]): ReadonlyMap<string, TunnelPeer> {
  return new Map(peers.map((peer) => [peer.uid, peer]));
}

export const someNodes: TunnelNodes = {
  self: { uid: EDGE_1, fqdn: "edge-1.example.net" },
  domain: "example.net",
  isActive: true,
  peers: peersOf([
    { uid: EDGE_2, fqdn: "edge-2.example.net" },
    { uid: GATEWAY_1, fqdn: "gw-1.example.net", gateway: { host: "198.51.100.1", port: 8443 } },
    { uid: GATEWAY_2, fqdn: "gw-2.example.net", gateway: { host: "gw-2.example.net", port: 443 } },
  ]),
};

/** A path that is up and idle. */
export function somePath(gateway: string, changes: Partial<PathState> = {}): PathState {
  return {
    gateway,
    id: "",
    state: "up",
    since: 1_700_000_000_000,
    carries: false,
    remote: { ip: "198.51.100.1", port: 8443 },
    rttMs: 1.50000004,
    loss: 0,
    attempts: 1,
    bytesIn: 0,
    bytesOut: 0,
    ...changes,
  };
}

/** A connected client. */
export function someClient(peer: string, changes: Partial<ClientState> = {}): ClientState {
  return { peer, state: "up", since: 1_700_000_000_000, sessions: 1, bytesIn: 0, bytesOut: 0, ...changes };
}

/** A mesh of these paths only. */
export function someMesh(changes: Partial<MeshState> = {}): MeshState {
  const server = { state: "off" as const, refused: {}, relays: { active: 0, total: 0, bytes: 0 } };
  return { paths: [], clients: [], sessions: [], server, ...changes };
}

/** An error as an overlay answers it. */
export const refusedAs = (code: string): SessionError => new SessionError(code, `the overlay says ${code}`);

/** Paths to other nodes with the test's answers, which record the requests. */
export class ScriptedTunnels implements Tunnels {
  known: TunnelNodes | undefined = someNodes;
  table: readonly MeshPath[] = [];
  state: MeshState | undefined = someMesh({ paths: [somePath(GATEWAY_1, { carries: true })] });
  echoes: (request: EchoRequest, seq: number) => EchoAnswer | Error | Promise<EchoAnswer> = () => ({
    rttMs: 1.25,
    gateway: GATEWAY_1,
    path: "",
  });
  uploads: (
    request: UploadRequest,
    onProgress: (progress: UploadProgress) => void,
    signal: AbortSignal,
  ) => Promise<UploadAnswer> = () => Promise.reject(refusedAs("not-connected"));
  readonly requested: (EchoRequest | UploadRequest)[] = [];

  nodes(): TunnelNodes | undefined {
    return this.known;
  }

  countedSince(): number | undefined {
    return this.state === undefined ? undefined : 1_700_000_000_000;
  }

  paths(): readonly MeshPath[] {
    return this.table;
  }

  mesh(): Promise<MeshState | undefined> {
    return Promise.resolve(this.state);
  }

  async echo(request: EchoRequest, signal: AbortSignal): Promise<EchoAnswer> {
    signal.throwIfAborted();
    const answer = this.echoes(request, this.requested.push(request) - 1);
    if (answer instanceof Error) throw answer;
    return answer;
  }

  perf(
    request: UploadRequest,
    onProgress: (progress: UploadProgress) => void,
    signal: AbortSignal,
  ): Promise<UploadAnswer> {
    this.requested.push(request);
    return this.uploads(request, onProgress, signal);
  }
}
