import { totalmem } from "node:os";
import type { Readable, Writable } from "node:stream";
import type { Clock } from "../../host/clock.ts";
import { ENHANCE_YOUR_CALM } from "./stream-codes.ts";

/** A stream that is watched. HTTP/2 streams can be reset; others are destroyed. */
export interface Watched extends Readable {
  close?(code: number): void;
  _final?(callback: (error?: Error | null) => void): void;
}

export interface UnreadOptions {
  readonly clock: Pick<Clock, "after">;
  /** What the process may use; an eighth of it may wait unread for one peer, a quarter for all. */
  readonly memoryBytes: number;
  /** Told whose stream was reset. */
  readonly onReset?: (peer: string) => void;
}

/**
 * What one stream may send before anybody reads it. The other side is told of room only when half of it is free, so that 4 MiB are
 * what one flow needs for more than 500 Mb/s at a round trip of 20 ms; with 2 MiB it reached 350.
 */
export const STREAM_WINDOW_BYTES = 4 * 1024 * 1024;

const LOOK_MS = 10;
/** Where nothing has come since, the next look may wait. */
const MAX_LOOK_MS = 80;
/** What a chunk costs beside its bytes: many small ones hold far more than they carry. */
const CHUNK_BYTES = 512;

/**
 * Bounds what arrived and was not read. HTTP/2 lets every stream of every session have a full window, since the session's own is
 * given back on arrival; where all of them might fill, whoever holds most is reset before the process is.
 */
export class UnreadBytes {
  readonly #clock: UnreadOptions["clock"];
  readonly #onReset: (peer: string) => void;
  readonly #perPeer: number;
  readonly #inAll: number;
  /** Streams that nobody reads at this moment, by whoever sends on them. */
  readonly #stalled = new Map<string, Set<Watched>>();
  /** Where what is read on a stream goes. */
  readonly #sinks = new WeakMap<Watched, Writable>();
  #count = 0;
  #cancel: (() => void) | undefined;
  #held = 0;
  #waitMs = LOOK_MS;

  constructor({ clock, memoryBytes, onReset = () => undefined }: UnreadOptions) {
    this.#clock = clock;
    this.#onReset = onReset;
    this.#perPeer = memoryBytes / 8;
    this.#inAll = memoryBytes / 4;
  }

  /** Counts what waits on a stream that `peer` sends on, from now until it is closed. */
  watch(peer: string, stream: Watched): void {
    if (stream.destroyed) return;
    const stall = (): void => this.#stall(peer, stream);
    const flow = (): void => this.#flow(peer, stream);
    stream.on("pause", stall).on("resume", flow);
    stream.once("close", () => {
      stream.off("pause", stall).off("resume", flow);
      flow();
    });
    if (stream.readableFlowing !== true) stall();
  }

  /** Counts what was read on a stream and waits to be sent by another, too. */
  leads(stream: Watched, sink: Writable): void {
    this.#sinks.set(stream, sink);
  }

  /** What waits at this moment, in bytes; without a peer, for all of them. */
  held(peer?: string): number {
    let held = 0;
    for (const [name, streams] of this.#stalled) {
      if (peer !== undefined && peer !== name) continue;
      for (const stream of streams) held += this.#heldBy(stream);
    }
    return held;
  }

  close(): void {
    this.#cancel?.();
    this.#stalled.clear();
    this.#count = 0;
  }

  #stall(peer: string, stream: Watched): void {
    const streams = this.#stalled.get(peer) ?? new Set<Watched>();
    if (streams.has(stream)) return;
    this.#stalled.set(peer, streams.add(stream));
    this.#count += 1;
    if (this.#mightExceed(streams)) this.#arm();
  }

  #flow(peer: string, stream: Watched): void {
    const streams = this.#stalled.get(peer);
    if (streams?.delete(stream) !== true) return;
    this.#count -= 1;
    if (streams.size === 0) this.#stalled.delete(peer);
  }

  #mightExceed(streams: ReadonlySet<Watched>): boolean {
    return streams.size * STREAM_WINDOW_BYTES > this.#perPeer || this.#count * STREAM_WINDOW_BYTES > this.#inAll;
  }

  #arm(): void {
    this.#cancel ??= this.#clock.after(this.#waitMs, () => {
      this.#cancel = undefined;
      this.#look();
    });
  }

  #look(): void {
    let mustLookAgain = this.#count * STREAM_WINDOW_BYTES > this.#inAll;
    for (const [peer, streams] of this.#stalled) {
      this.#cut(this.#perPeer, [[peer, streams]]);
      mustLookAgain ||= streams.size * STREAM_WINDOW_BYTES > this.#perPeer;
    }
    this.#cut(this.#inAll, [...this.#stalled]);
    const held = this.held();
    this.#waitMs = held > this.#held || !mustLookAgain ? LOOK_MS : Math.min(this.#waitMs * 2, MAX_LOOK_MS);
    this.#held = held;
    if (mustLookAgain) this.#arm();
  }

  #heldBy(stream: Watched): number {
    const state: unknown = Reflect.get(stream, "_readableState");
    const chunks: unknown = typeof state === "object" && state !== null ? Reflect.get(state, "buffer") : undefined;
    const overhead = Array.isArray(chunks) ? chunks.length * CHUNK_BYTES : 0;
    return stream.readableLength + overhead + (this.#sinks.get(stream)?.writableLength ?? 0);
  }

  /** Resets whichever streams hold most until the rest is within the bound. */
  #cut(boundBytes: number, groups: readonly (readonly [string, ReadonlySet<Watched>])[]): void {
    const all = groups.flatMap(([peer, streams]) =>
      [...streams].map((stream) => ({ peer, stream, bytes: this.#heldBy(stream) })),
    );
    let held = all.reduce((sum, { bytes }) => sum + bytes, 0);
    if (held <= boundBytes) return;
    for (const { peer, stream, bytes } of all.toSorted((a, b) => b.bytes - a.bytes)) {
      if (held <= boundBytes) return;
      held -= bytes;
      this.#flow(peer, stream);
      reset(stream);
      this.#onReset(peer);
    }
  }
}

/** What this process may use, in bytes: the bound of its control group, or the machine's memory. */
export function memoryLimit(): number {
  const bound = process.constrainedMemory();
  return bound > 0 && bound < totalmem() ? bound : totalmem();
}

function reset(stream: Watched): void {
  // Else closing would end it in order first, and the other side would take what it has for the whole.
  stream._final = (callback) => callback();
  stream.close?.(ENHANCE_YOUR_CALM);
  // What was not read is let go at once, rather than when the other side has heard.
  stream.destroy();
}
