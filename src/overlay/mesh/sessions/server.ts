import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { SessionError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { ClientState, MeshEvent, OverlayMesh, ServerState } from "../../../protocol/overlay/mesh.ts";
import type { BindingsOptions } from "../../bindings/bindings.ts";
import { Clients } from "./clients.ts";
import { Admission, type AdmissionLimits } from "./admission.ts";
import type { MeshLimiters } from "../transport/rate-limits.ts";
import { openStream } from "../paths/open-stream.ts";
import { StreamRouter } from "./stream-router.ts";
import { Relay, type DialOnward } from "./relay.ts";
import { GatewayListener } from "./gateway-listener.ts";
import type { MeshIdentity } from "../transport/tls.ts";
import type { ReceiveBuffers } from "../transport/receive-buffer.ts";
import type { Inbound, SpliceOptions, PathId, PeerDialOptions, PeerDialer } from "../paths/peer-dialer.ts";

export interface MeshServerOptions extends BindingsOptions {
  readonly clock: Clock;
  /** Returns the identity of this node, once it is known. */
  readonly identity: () => MeshIdentity | undefined;
  readonly inbound: Inbound;
  /** Opens streams over the paths of this node itself, to nodes that are not its clients. */
  readonly onward: DialOnward;
  readonly limiters: MeshLimiters;
  readonly receiveBuffers: ReceiveBuffers;
  /** Called when another node has opened a stream. */
  readonly onStream: () => void;
  /** Called when the state of the gateway or of a client has changed. */
  readonly onChanged: () => void;
  readonly onEvent: (event: MeshEvent) => void;
  readonly limits?: Partial<AdmissionLimits> & { readonly maxRelays?: number };
}

const MAX_RELAYS = 50_000;

/** The node's own gateway: admits nodes, routes their streams, and relays between them. */
export class MeshServer implements PeerDialer {
  readonly #options: MeshServerOptions;
  readonly #clients: Clients;
  readonly #relay: Relay;
  readonly #router: StreamRouter;
  readonly #admission: Admission;
  readonly #listener: GatewayListener;
  #mesh: OverlayMesh | undefined;
  /** Nodes that may connect, by key. */
  #byKey: ReadonlyMap<string, string> = new Map();

  constructor(options: MeshServerOptions) {
    const { clock, limiters, receiveBuffers, inbound, onward, onEvent, onChanged, limits = {} } = options;
    this.#options = options;
    this.#clients = new Clients({
      clock,
      onEvent,
      onChanged,
      onStream: (stream, headers, peer) => this.#router.receive(stream, headers, { peer, pathId: this.#pathId }),
    });
    this.#relay = new Relay({
      clock,
      limiters,
      receiveBuffers,
      onward,
      inbound: (peer) => this.#clients.inbound(peer),
      maxActive: limits.maxRelays ?? MAX_RELAYS,
    });
    this.#router = new StreamRouter({ clock, inbound, relay: this.#relay, receiveBuffers, onStream: options.onStream });
    this.#admission = new Admission({
      clock,
      limits,
      identity: options.identity,
      peerOf: (key) => this.#byKey.get(key),
      onPeer: (peer, protocol, socket, key) => this.#clients.add(peer, key, protocol, socket),
    });
    this.#listener = new GatewayListener({ ...options, user: this.#admission });
  }

  /** Number of streams relayed between other nodes. */
  get activeRelays(): number {
    return this.#relay.active;
  }

  /** Applies another mesh; nodes that may no longer connect lose their sessions immediately. Calls must not overlap. */
  async apply(mesh: OverlayMesh | undefined): Promise<void> {
    const isOn = mesh?.server !== undefined && this.#options.identity() !== undefined;
    const mayDial = isOn ? mesh.peers.filter((peer) => peer.mayDial === true) : [];
    this.#mesh = mesh;
    this.#byKey = new Map(mayDial.map(({ key, uid }) => [key, uid]));
    const keys = new Map(mayDial.map(({ uid, key }) => [uid, key]));
    this.#router.apply(mesh);
    this.#clients.keepOnly(keys, isOn ? "it may no longer dial this gateway" : "this gateway was turned off");
    this.#relay.apply(mesh);
    if (!isOn) this.#admission.close();
    await this.#listener.move(isOn ? mesh.server : undefined);
  }

  /** Routes a stream that a gateway opened on a session dialled by this node. */
  receive(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, pathId: PathId): void {
    this.#router.receive(stream, headers, { peer: pathId.gateway, pathId });
  }

  direct(peer: string, { path }: PeerDialOptions): ReturnType<PeerDialer["direct"]> {
    const [hop] = path === undefined || path === "" ? this.#clients.inbound(peer) : [];
    return hop === undefined ? undefined : Promise.resolve({ session: hop.session, pathId: this.#pathId });
  }

  /** Reports whether a node is connected to this gateway and accepts streams. */
  serves(client: string): boolean {
    return this.#clients.inbound(client).length > 0;
  }

  /** Opens a stream through the gateway `via`, which has dialled this one. */
  async splice(peer: string, { signal, via }: SpliceOptions): ReturnType<PeerDialer["splice"]> {
    let failure = new SessionError("peer-absent", "no client of this gateway has a path there");
    for (const hop of via === undefined ? [] : this.#clients.inbound(via)) {
      try {
        const headers = { ":authority": `${peer}:443` };
        return { stream: await openStream(this.#options.clock, hop.session, headers, signal), pathId: this.#pathId };
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof SessionError) failure = error;
      }
    }
    throw failure;
  }

  clients(): ClientState[] {
    return this.#clients.states();
  }

  state(): ServerState {
    const isOn = this.#mesh?.server !== undefined;
    const noKey = { state: "failed", message: "this node has no overlay key yet" } as const;
    const stands = isOn && this.#options.identity() === undefined ? noKey : this.#listener.state;
    return { ...stands, refused: { ...this.#admission.refused }, relays: this.#relay.counts };
  }

  /** Retries failed binds. */
  retryNow(): Promise<void> {
    return this.#listener.retry();
  }

  /** Stops accepting and asks clients to use another gateway; running streams continue. */
  async drain(): Promise<void> {
    await this.#listener.stop();
    this.#clients.drain();
  }

  /** Closes everything immediately. */
  close(): void {
    this.#listener.close();
    this.#admission.close();
    this.#clients.keepOnly(new Map(), "this overlay is stopping");
    this.#relay.close();
  }

  /** A client names its paths itself; on this side there is only one. */
  get #pathId(): PathId {
    return { gateway: this.#mesh?.self ?? "", path: "" };
  }
}
