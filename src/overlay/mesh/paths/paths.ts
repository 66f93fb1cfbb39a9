import type { IncomingHttpHeaders, OutgoingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { SessionError } from "../../../errors.ts";
import { untilAborted } from "../../../lib/async/until-aborted.ts";
import type { MeshEvent, MeshPath, OverlayMesh, PathState, RttBucket } from "../../../protocol/overlay/mesh.ts";
import { viasOf } from "./static-routes.ts";
import type { PathId, PeerDialOptions, PeerDialer, RelayedSpliceOptions, SpliceOptions } from "./peer-dialer.ts";
import { choose, isSame, NO_CHOICE, ranked, type Choice } from "./choice.ts";
import { Link, type LinkOptions } from "./link.ts";
import { mostSpecificFailure, sessionErrorOf } from "./failures.ts";
import { openStream } from "./open-stream.ts";

export interface PathsOptions extends Pick<LinkOptions, "clock" | "random" | "dial"> {
  /** Called with each stream that a gateway opened. */
  readonly onStream: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, pathId: PathId) => void;
  /** Called when the state of a path or the choice has changed. */
  readonly onChanged: () => void;
  /** Called when a path has come up. */
  readonly onUp?: () => void;
  readonly onEvent: (event: MeshEvent) => void;
  readonly onBuckets: (buckets: readonly RttBucket[]) => void;
}

const MINUTE_MS = 60_000;
/** Delay after the end of a minute, until its last answers have arrived. */
const CLOSE_AFTER_MS = 5500;
/** Keeps up the paths to all dialled gateways, measures them, and chooses between them. */
export class Paths implements PeerDialer {
  readonly #options: PathsOptions;
  readonly #links = new Map<string, Link>();
  #mesh: OverlayMesh | undefined;
  #choice: Choice = NO_CHOICE;
  #cancelMinute: (() => void) | undefined;
  /** Requests that wait for a path to change its state. */
  readonly #waiting: (() => void)[] = [];

  constructor(options: PathsOptions) {
    this.#options = options;
  }

  /** Applies paths. Unchanged paths keep their sessions; without a mesh everything closes. */
  apply(mesh: OverlayMesh | undefined): void {
    if (mesh?.self !== this.#mesh?.self) this.#removeAll(() => true, "this node's uid has changed");
    const wanted = new Map((mesh?.paths ?? []).map((path) => [keyOf(path), path]));
    const before = this.#gateways();
    this.#mesh = mesh;
    this.#removeAll(
      ({ pathId }) => !wanted.has(keyOf({ gateway: pathId.gateway, id: pathId.path })),
      "removed from the configuration",
    );
    this.#reportRemoved(before, wanted.values());
    const keys = new Map((mesh?.peers ?? []).map(({ uid, key }) => [uid, key]));
    for (const [key, path] of wanted) {
      const link = this.#links.get(key);
      if (link !== undefined) link.change(path, keys.get(path.gateway));
      else this.#links.set(key, this.#newLink(path, keys.get(path.gateway)));
    }
    this.#choose();
    this.#options.onChanged();
    this.#armMinute();
  }

  states(): PathState[] {
    const { pathId } = this.#choice;
    return [...this.#links.values()].map((link) => {
      return link.state(link.upSince !== undefined && isPath(link, pathId));
    });
  }

  direct(peer: string, { signal, path }: PeerDialOptions): ReturnType<PeerDialer["direct"]> {
    const links = [...this.#links.values()].filter(({ pathId }) => pathId.gateway === peer);
    if (links.length === 0) return undefined;
    return this.#first(
      () => this.#inOrder(links, path),
      links,
      signal,
      async (link) => {
        const { session } = await link.outbound(signal);
        return { session, pathId: link.pathId };
      },
    );
  }

  splice(peer: string, options: SpliceOptions & Partial<RelayedSpliceOptions>): ReturnType<PeerDialer["splice"]> {
    const { signal, path, except, via, tried } = options;
    const links = [...this.#links.values()].filter(
      ({ pathId: { gateway } }) =>
        gateway !== except && (via === undefined || gateway === via) && tried?.has(gateway) !== true,
    );
    const headers = headersOf(peer, options);
    return this.#first(
      () => this.#towards(peer, this.#inOrder(links, path)),
      links,
      signal,
      async (link) => {
        const hop = await link.outbound(signal);
        return { stream: await openStream(this.#options.clock, hop.session, headers, signal), pathId: link.pathId };
      },
    );
  }

  /** Reacts to a change of the network: redials waiting paths and probes open ones. */
  wake(isHere: (address: string) => boolean): void {
    for (const link of this.#links.values()) link.wake(isHere);
  }

  /** Ends every session and dials again, because this node's key has changed. */
  renew(): void {
    const mesh = this.#mesh;
    this.#removeAll(() => true, "this node's key has changed");
    this.apply(mesh);
  }

  /** Stops dialling and accepting; running streams continue. */
  drain(): void {
    for (const link of this.#links.values()) link.drain();
  }

  close(): void {
    this.#removeAll(() => true, "this overlay is stopping");
    this.#armMinute();
  }

  #newLink(path: MeshPath, key: string | undefined): Link {
    const { clock, random, dial, onStream, onEvent } = this.#options;
    return new Link(path, key, {
      clock,
      random,
      dial,
      onStream,
      onEvent,
      onMeasured: () => this.#choose(),
      onChanged: (cameUp) => {
        for (const go of this.#waiting.splice(0)) go();
        if (cameUp) for (const link of this.#links.values()) link.hasten();
        this.#choose();
        if (cameUp) this.#options.onUp?.();
        this.#options.onChanged();
      },
    });
  }

  /** Returns the links that are up, the chosen one first. */
  #inOrder(links: readonly Link[], path: string | undefined): readonly Link[] {
    const { pathId } = this.#choice;
    const up = ranked(links.filter((link) => path === undefined || link.pathId.path === path).map(candidateOf));
    const all = up.map(({ link }) => link);
    return [...all].sort((a, b) => Number(isPath(b, pathId)) - Number(isPath(a, pathId)));
  }

  /** Sorts links by static routes first. */
  #towards(peer: string, links: readonly Link[]): readonly Link[] {
    const vias = viasOf(this.#mesh, peer);
    const placeOf = ({ pathId }: Link): number =>
      vias.includes(pathId.gateway) ? vias.indexOf(pathId.gateway) : vias.length;
    return vias.length === 0 ? links : [...links].sort((a, b) => placeOf(a) - placeOf(b));
  }

  /** Tries one link after another; skips a gateway that has answered for itself on another path. */
  async #first<T>(
    inOrder: () => readonly Link[],
    links: readonly Link[],
    signal: AbortSignal,
    attempt: (link: Link) => Promise<T>,
  ): Promise<T> {
    // After a start, waits for the first state of the paths.
    while (links.every(({ upSince }) => upSince === undefined) && links.some(({ isUntried }) => isUntried)) {
      await untilAborted(this.#verdict(), signal);
    }
    const answered = new Set<string>();
    const failures: SessionError[] = [];
    for (const link of inOrder()) {
      if (answered.has(link.pathId.gateway)) continue;
      try {
        return await attempt(link);
      } catch (error) {
        signal.throwIfAborted();
        const failure = sessionErrorOf(error);
        failures.push(failure);
        if (!PATH_FAULTS.has(failure.code)) answered.add(link.pathId.gateway);
      }
    }
    throw mostSpecificFailure(failures) ?? this.#noPath();
  }

  #verdict(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #noPath(): SessionError {
    const count = this.#links.size;
    return new SessionError("no-path", count === 0 ? "this node knows no gateway" : `none of ${count} paths is up`);
  }

  #choose(): void {
    const { clock, onEvent, onChanged } = this.#options;
    const before = this.#choice;
    const links = [...this.#links.values()];
    if (links.length === 0) {
      this.#choice = NO_CHOICE;
      return;
    }
    this.#choice = choose(links.map(candidateOf), before, clock.elapsed());
    const { pathId } = this.#choice;
    if (pathId === undefined || (before.pathId !== undefined && isSame(pathId, before.pathId))) return;
    if (before.pathId !== undefined) {
      const left = links.find((link) => isPath(link, before.pathId));
      onEvent({ kind: "moved", at: clock.now(), ...pathId, from: before.pathId, ...this.#whyMoved(left) });
    }
    onChanged();
  }

  #whyMoved(left: Link | undefined): { cause: string; durationMs?: number } {
    if (left === undefined) return { cause: "the current path was removed" };
    if (left.upSince !== undefined || left.trouble === undefined) return { cause: "this path was better for 10 s" };
    const { cause, since } = left.trouble;
    return { cause, durationMs: Math.max(0, this.#options.clock.elapsed() - since) };
  }

  #removeAll(which: (link: Link) => boolean, cause: string): void {
    for (const [key, link] of this.#links) {
      if (!which(link)) continue;
      this.#links.delete(key);
      this.#closeMinutes([link], true);
      link.close(cause);
    }
    for (const go of this.#waiting.splice(0)) go();
  }

  /** Reports removed gateways, but not if the whole mesh was removed. */
  #reportRemoved(before: ReadonlySet<string>, wanted: Iterable<MeshPath>): void {
    if (this.#mesh === undefined) return;
    const left = new Set(before);
    for (const { gateway } of wanted) left.delete(gateway);
    const cause = "removed from the configuration";
    for (const gateway of left) {
      this.#options.onEvent({ kind: "gateway-removed", at: this.#options.clock.now(), gateway, cause });
    }
  }

  #gateways(): ReadonlySet<string> {
    return new Set([...this.#links.values()].map(({ pathId }) => pathId.gateway));
  }

  #armMinute(): void {
    if (this.#links.size === 0) {
      this.#cancelMinute?.();
      this.#cancelMinute = undefined;
    }
    if (this.#links.size === 0 || this.#cancelMinute !== undefined) return;
    const { clock } = this.#options;
    const wait = MINUTE_MS - (clock.now() % MINUTE_MS) + CLOSE_AFTER_MS;
    this.#cancelMinute = clock.after(wait, () => {
      this.#cancelMinute = undefined;
      this.#closeMinutes([...this.#links.values()], false);
      this.#armMinute();
    });
  }

  #closeMinutes(links: readonly Link[], all: boolean): void {
    const buckets = links.flatMap((link) => link.closeMinutes(this.#options.clock.now(), all));
    if (buckets.length > 0) this.#options.onBuckets(buckets);
  }
}

/** Failures of a path rather than of the destination. */
const PATH_FAULTS: ReadonlySet<string> = new Set(["no-path", "tunnel-lost", "connect-timeout", "unreachable"]);

function headersOf(peer: string, { hops, source }: Partial<RelayedSpliceOptions>): OutgoingHttpHeaders {
  return {
    ":authority": `${peer}:443`,
    ...(hops === undefined ? {} : { "holdfast-hops": String(hops) }),
    ...(source === undefined ? {} : { "holdfast-source": source }),
  };
}

function keyOf({ gateway, id }: Pick<MeshPath, "gateway" | "id">): string {
  return `${gateway} ${id}`;
}

function isPath({ pathId }: Link, other: PathId | undefined): boolean {
  return other !== undefined && isSame(pathId, other);
}

function candidateOf(link: Link) {
  const { pathId, isDefault, upSince, rttMs } = link;
  return { link, ...pathId, isDefault, upSince, rttMs };
}
