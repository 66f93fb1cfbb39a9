import { isIP } from "node:net";
import { SessionError } from "../../errors.ts";
import type { Files } from "../../host/files/files.ts";
import type { MeshEvent, MeshState, OverlayIdentity, OverlayMesh, RttBucket } from "../../protocol/overlay/mesh.ts";
import type { ListenerOptions } from "../listeners/listener.ts";
import { nameCache, type AskName, type NameCache } from "../dial/name-cache.ts";
import type { Remote } from "../listeners/remote.ts";
import { identityStore, type IdentityStore } from "./transport/identity.ts";
import { MeshLimiters } from "./transport/rate-limits.ts";
import { dialHop } from "./paths/dial-hop.ts";
import { mostSpecificFailure, sessionErrorOf } from "./paths/most-specific-failure.ts";
import { Paths } from "./paths/paths.ts";
import { peerFlows, type PeerFlows } from "./peers/peer-flows.ts";
import { MeshServer } from "./sessions/server.ts";
import { viasOf } from "./paths/static-routes.ts";
import type { MeshIdentity } from "./transport/tls.ts";
import { memoryLimit, ReceiveBuffers } from "./transport/receive-buffer.ts";
import type { SpliceOptions, PeerDialOptions, PeerDialer } from "./paths/peer-dialer.ts";

export interface MeshOptions {
  /** What flows from other nodes need of this one. */
  readonly local: ListenerOptions;
  readonly files: Files;
  /** Where the identity is kept. */
  readonly stateDir: string;
  readonly askName: AskName;
  readonly localAddresses: () => readonly string[];
  readonly random: () => number;
  /** Called with each stream from another node. */
  readonly onStream: () => void;
  readonly onChanged: () => void;
  readonly onEvent: (event: MeshEvent) => void;
  readonly onBuckets: (buckets: readonly RttBucket[]) => void;
}

/** How long a first verdict of every path is waited for. */
const SETTLE_MS = 5000;
const SETTLE_POLL_MS = 50;

/** The way to other nodes and from them: this node's identity, its paths, its own gateway, and what runs over them. */
export class Mesh {
  readonly #options: MeshOptions;
  readonly #store: IdentityStore;
  readonly #names: NameCache;
  readonly #receiveBuffers: ReceiveBuffers;
  readonly #limiters: MeshLimiters;
  readonly #paths: Paths;
  readonly #server: MeshServer;
  readonly #flows: PeerFlows;
  #identity: MeshIdentity | undefined;
  #mesh: OverlayMesh | undefined;
  #work: Promise<unknown> = Promise.resolve();

  constructor(options: MeshOptions) {
    const { local, onChanged, onEvent, onBuckets } = options;
    const { clock } = local;
    this.#options = options;
    this.#store = identityStore(options.files, options.stateDir);
    this.#names = nameCache(clock, options.askName);
    this.#receiveBuffers = new ReceiveBuffers({ memoryBytes: memoryLimit() });
    this.#limiters = new MeshLimiters(clock);
    const identity = (): MeshIdentity | undefined => this.#identity;
    this.#paths = new Paths({
      clock,
      random: options.random,
      dial: (target, protocol, signal) => dialHop({ clock, names: this.#names, identity }, target, protocol, signal),
      onStream: (stream, headers, pathId) => this.#server.receive(stream, headers, pathId),
      onChanged,
      onUp: () => this.#flows.retryNow(),
      onEvent,
      onBuckets,
    });
    this.#flows = peerFlows({
      local,
      peerDialer: this.peerDialer,
      identity,
      receiveBuffers: this.#receiveBuffers,
      tunnelLimiters: this.#limiters,
      onEvent,
    });
    this.#server = new MeshServer({
      clock,
      identity,
      own: local.own,
      isBeside: local.isBeside,
      inbound: this.#flows.inbound,
      onward: (peer, options) => this.#paths.splice(peer, options),
      limiters: this.#limiters,
      receiveBuffers: this.#receiveBuffers,
      onStream: options.onStream,
      onChanged,
      onEvent,
    });
  }

  /** How other nodes are reached. */
  get peerDialer(): PeerDialer {
    return {
      direct: (peer, options) => this.#server.direct(peer, options) ?? this.#paths.direct(peer, options),
      splice: (peer, options) => this.#splice(peer, options),
    };
  }

  /** Streams that are carried between other nodes. */
  get activeRelays(): number {
    return this.#server.activeRelays;
  }

  /** What this node's listeners dial through. */
  get remote(): Remote {
    return this.#flows.remote;
  }

  /** Measures the ways to peers. */
  get measure(): PeerFlows["measure"] {
    return this.#flows.measure;
  }

  /** Takes the identity that is on disk; resolves to the name of a damaged file that was set aside. */
  async loadIdentity(): Promise<string | undefined> {
    const { identity, damagedCopy } = await this.#store.load();
    this.#identity = identity;
    return damagedCopy;
  }

  /**
   * Makes another identity this node's own, and its sessions anew if it is not the same; `notKept` says why it is not on disk.
   * @throws {InputError} `invalid-key`
   */
  async setIdentity(given: OverlayIdentity): Promise<{ readonly notKept?: unknown }> {
    const { identity, ...rest } = await this.#store.set(given);
    const isSame = this.#identity?.key === identity.key && this.#identity.uid === identity.uid;
    this.#identity = identity;
    if (!isSame) {
      this.#paths.renew();
      await this.#serially(() => this.#server.apply(this.#mesh));
    }
    return rest;
  }

  /** Puts peers, paths, grants and the gateway into force; without a mesh everything ends. */
  async apply(mesh: OverlayMesh | undefined): Promise<void> {
    this.#mesh = mesh;
    this.#limiters.apply(mesh);
    this.#names.keepOnly(new Set((mesh?.paths ?? []).map(({ host }) => host)));
    this.#flows.apply(mesh ?? { peers: [], paths: [], grants: [] });
    this.#paths.apply(mesh);
    await this.#serially(() => this.#server.apply(mesh));
  }

  /** Tries again to listen where this node's gateway should and does not. */
  retryNow(): Promise<void> {
    return this.#serially(() => this.#server.retryNow());
  }

  /** Resolves when every path is up or has failed once, or after a few seconds. */
  async settled(): Promise<void> {
    const { clock } = this.#options.local;
    const end = clock.elapsed() + SETTLE_MS;
    while (this.#paths.states().some(({ state }) => state === "connecting") && clock.elapsed() < end)
      await clock.sleep(SETTLE_POLL_MS);
  }

  state(): MeshState {
    return {
      paths: this.#paths.states(),
      clients: this.#server.clients(),
      sessions: this.#flows.states(),
      server: this.#server.state(),
    };
  }

  /** The network has changed: what waits is dialled at once, what is up is probed, what left from an address that is gone ends. */
  wake(): void {
    const here = new Set(this.#options.localAddresses());
    // Where the system does not say what is here, nothing is known to be gone.
    this.#paths.wake((address) => here.size === 0 || here.has(address) || isLoopback(address));
  }

  /** Takes nothing new; what runs goes on. */
  async drain(): Promise<void> {
    await this.#serially(() => this.#server.drain());
    this.#flows.drain();
    this.#paths.drain();
  }

  /** Ends everything at once. */
  close(): void {
    this.#flows.close();
    this.#server.close();
    this.#paths.close();
    this.#limiters.close();
    this.#receiveBuffers.close();
  }

  /** By the gateways that static routes name, be they dialled or dialling; then by the others that this node dials. */
  async #splice(peer: string, options: PeerDialOptions): ReturnType<PeerDialer["splice"]> {
    const { signal, path } = options;
    if (this.#mesh?.server === undefined || path !== undefined) return this.#paths.splice(peer, options);
    const vias = viasOf(this.#mesh, peer);
    const failures: SessionError[] = [];
    for (const via of [...vias, undefined]) {
      const next: SpliceOptions = via === undefined ? { signal, tried: new Set(vias) } : { signal, via };
      const by = via !== undefined && this.#server.serves(via) ? this.#server : this.#paths;
      try {
        return await by.splice(peer, next);
      } catch (error) {
        signal.throwIfAborted();
        failures.push(sessionErrorOf(error));
      }
    }
    const absent = new SessionError("peer-absent", "neither a client of this gateway nor behind another one");
    throw mostSpecificFailure([...failures, absent]) ?? absent;
  }

  #serially(work: () => Promise<void>): Promise<void> {
    const result = this.#work.then(work);
    this.#work = result.catch(() => undefined);
    return result;
  }
}

function isLoopback(address: string): boolean {
  return address === "::1" || (isIP(address) === 4 && address.startsWith("127."));
}
