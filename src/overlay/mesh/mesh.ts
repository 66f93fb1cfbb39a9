import { isIP } from "node:net";
import type { Files } from "../../host/files.ts";
import type { MeshEvent, MeshState, OverlayIdentity, OverlayMesh, RttBucket } from "../../protocol/overlay-mesh.ts";
import type { ListenerOptions } from "../listener.ts";
import { nameCache, type AskName, type NameCache } from "../name-cache.ts";
import type { Remote } from "../remote.ts";
import { identityStore, type IdentityStore } from "./identity.ts";
import { takeInward } from "./inward-stream.ts";
import { dialHop } from "./paths/dial-hop.ts";
import { Paths } from "./paths/paths.ts";
import { peerFlows, type PeerFlows } from "./peers/peer-flows.ts";
import type { MeshIdentity } from "./tls.ts";
import type { Ways } from "./ways.ts";

export interface MeshOptions {
  /** What flows from other nodes need of this one. */
  readonly local: ListenerOptions;
  readonly files: Files;
  /** Where the identity is kept. */
  readonly stateDir: string;
  readonly askName: AskName;
  readonly localAddresses: () => readonly string[];
  readonly random: () => number;
  readonly onChanged: () => void;
  readonly onEvent: (event: MeshEvent) => void;
  readonly onBuckets: (buckets: readonly RttBucket[]) => void;
}

/** How long a first verdict of every path is waited for. */
const SETTLE_MS = 5000;
const SETTLE_LOOK_MS = 50;

/** The way to other nodes and from them: this node's identity, its paths, its own gateway, and what runs over them. */
export class Mesh {
  readonly #options: MeshOptions;
  readonly #store: IdentityStore;
  readonly #names: NameCache;
  readonly #paths: Paths;
  readonly #flows: PeerFlows;
  #identity: MeshIdentity | undefined;
  #mesh: OverlayMesh | undefined;

  constructor(options: MeshOptions) {
    const { local, onChanged, onEvent, onBuckets } = options;
    const { clock } = local;
    this.#options = options;
    this.#store = identityStore(options.files, options.stateDir);
    this.#names = nameCache(clock, options.askName);
    this.#paths = new Paths({
      clock,
      random: options.random,
      dial: (target, protocol, signal) => dialHop({ clock, names: this.#names, identity }, target, protocol, signal),
      onStream: (stream, headers, way) =>
        takeInward(stream, headers, { self: this.#mesh?.self ?? "", way, inward: this.#flows.inward }),
      onChanged,
      onEvent,
      onBuckets,
    });
    const identity = (): MeshIdentity | undefined => this.#identity;
    this.#flows = peerFlows({ local, ways: this.ways, identity, onEvent });
  }

  /** How other nodes are reached. */
  get ways(): Ways {
    return {
      direct: (peer, wish) => this.#paths.direct(peer, wish),
      splice: (peer, wish) => this.#paths.splice(peer, wish),
    };
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
    if (!isSame) this.#paths.renew();
    return rest;
  }

  /** Puts peers, paths, grants and the gateway into force; without a mesh everything ends. */
  apply(mesh: OverlayMesh | undefined): void {
    this.#mesh = mesh;
    this.#names.keepOnly(new Set((mesh?.paths ?? []).map(({ host }) => host)));
    this.#flows.apply(mesh ?? { peers: [], paths: [], grants: [] });
    this.#paths.apply(mesh);
  }

  /** Resolves when every path is up or has failed once, or after a few seconds. */
  async settled(): Promise<void> {
    const { clock } = this.#options.local;
    const end = clock.elapsed() + SETTLE_MS;
    while (this.#paths.states().some(({ state }) => state === "connecting") && clock.elapsed() < end)
      await clock.sleep(SETTLE_LOOK_MS);
  }

  state(): MeshState {
    return {
      paths: this.#paths.states(),
      clients: [],
      sessions: this.#flows.states(),
      server: { state: "off", refused: {}, relays: { active: 0, total: 0, bytes: 0 } },
    };
  }

  /** The network has changed: what waits is dialled at once, what is up is probed, what left from an address that is gone ends. */
  wake(): void {
    const here = new Set(this.#options.localAddresses());
    // Where the system does not say what is here, nothing is known to be gone.
    this.#paths.wake((address) => here.size === 0 || here.has(address) || isLoopback(address));
  }

  /** Takes nothing new; what runs goes on. */
  drain(): void {
    this.#flows.drain();
    this.#paths.drain();
  }

  /** Ends everything at once. */
  close(): void {
    this.#flows.close();
    this.#paths.close();
  }
}

function isLoopback(address: string): boolean {
  return address === "::1" || (isIP(address) === 4 && address.startsWith("127."));
}
