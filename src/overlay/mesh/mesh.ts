import type { Random } from "../../lib/async/backoff.ts";
import { isIP } from "node:net";
import { SessionError } from "../../errors.ts";
import { serialQueue } from "../../lib/async/serial-queue.ts";
import type { Files } from "../../host/files/files.ts";
import type { MeshEvent, MeshState, OverlayIdentity, OverlayMesh, RttBucket } from "../../protocol/overlay/mesh.ts";
import type { ListenerOptions } from "../listeners/listener.ts";
import { nameCache, type AskName, type NameCache } from "../dial/name-cache.ts";
import type { Remote } from "../listeners/remote.ts";
import { identityStore, type IdentityStore } from "./transport/identity.ts";
import { MeshLimiters } from "./transport/rate-limits.ts";
import { dialHop } from "./paths/dial-hop.ts";
import { mostSpecificFailure, sessionErrorOf } from "./paths/failures.ts";
import { Paths } from "./paths/paths.ts";
import { peerFlows, type PeerFlows } from "./peers/peer-flows.ts";
import { MeshServer } from "./sessions/server.ts";
import { viasOf } from "./paths/static-routes.ts";
import type { MeshIdentity } from "./transport/tls.ts";
import { memoryLimit, ReceiveBuffers } from "./transport/receive-buffer.ts";
import type { SpliceOptions, PeerDialOptions, PeerDialer } from "./paths/peer-dialer.ts";

export interface MeshOptions {
  /** Dependencies of flows from other nodes. */
  readonly local: ListenerOptions;
  readonly files: Files;
  /** Directory of the identity file. */
  readonly stateDir: string;
  readonly askName: AskName;
  readonly localAddresses: () => readonly string[];
  readonly random: Random;
  /** Called with each stream from another node. */
  readonly onStream: () => void;
  readonly onChanged: () => void;
  readonly onEvent: (event: MeshEvent) => void;
  readonly onBuckets: (buckets: readonly RttBucket[]) => void;
}

/** Maximum wait for the first state of every path. */
const SETTLE_MS = 5000;
const SETTLE_POLL_MS = 50;

/** Connects this node with other nodes: its identity, paths, gateway, and the flows over them. */
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
  readonly #serially = serialQueue();

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

  /** Opens sessions and streams to other nodes. */
  get peerDialer(): PeerDialer {
    return {
      direct: (peer, options) => this.#server.direct(peer, options) ?? this.#paths.direct(peer, options),
      splice: (peer, options) => this.#splice(peer, options),
    };
  }

  /** Number of streams relayed between other nodes. */
  get activeRelays(): number {
    return this.#server.activeRelays;
  }

  /** Dials other nodes for this node's listeners. */
  get remote(): Remote {
    return this.#flows.remote;
  }

  /** Measures round trip and throughput to peers. */
  get measure(): PeerFlows["measure"] {
    return this.#flows.measure;
  }

  /** Loads the stored identity; returns the name of a damaged file that was set aside. */
  async loadIdentity(): Promise<string | undefined> {
    const { identity, damagedCopy } = await this.#store.load();
    this.#identity = identity;
    return damagedCopy;
  }

  /**
   * Sets this node's identity and renews its sessions if it differs; `notKept` is the error of saving it.
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

  /** Applies peers, paths, grants and the gateway; without a mesh closes everything. */
  async apply(mesh: OverlayMesh | undefined): Promise<void> {
    this.#mesh = mesh;
    this.#limiters.apply(mesh);
    this.#names.keepOnly(new Set((mesh?.paths ?? []).map(({ host }) => host)));
    this.#flows.apply(mesh ?? { peers: [], paths: [], grants: [] });
    this.#paths.apply(mesh);
    await this.#serially(() => this.#server.apply(mesh));
  }

  /** Retries the gateway's failed listeners. */
  retryNow(): Promise<void> {
    return this.#serially(() => this.#server.retryNow());
  }

  /** Resolves when every path is up or has failed once, at the latest after 5 s. */
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

  /** Reacts to a change of the network: redials waiting paths, probes open ones, and ends sessions whose local address was removed. */
  wake(): void {
    const here = new Set(this.#options.localAddresses());
    // An empty list means that the addresses are unknown.
    this.#paths.wake((address) => here.size === 0 || here.has(address) || isLoopback(address));
  }

  /** Stops accepting; running streams continue. */
  async drain(): Promise<void> {
    await this.#serially(() => this.#server.drain());
    this.#flows.drain();
    this.#paths.drain();
  }

  /** Closes everything immediately. */
  close(): void {
    this.#flows.close();
    this.#server.close();
    this.#paths.close();
    this.#limiters.close();
    this.#receiveBuffers.close();
  }

  /** Tries the gateways of static routes, whether dialled or dialling, then the other gateways that this node dials. */
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
    const absent = new SessionError(
      "peer-absent",
      "not a client of this gateway, and not reachable through another one",
    );
    throw mostSpecificFailure([...failures, absent]) ?? absent;
  }
}

function isLoopback(address: string): boolean {
  return address === "::1" || (isIP(address) === 4 && address.startsWith("127."));
}
