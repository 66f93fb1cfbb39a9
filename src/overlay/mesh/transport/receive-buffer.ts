import { totalmem } from "node:os";
import type { Readable, Writable } from "node:stream";
import { ENHANCE_YOUR_CALM } from "./stream-codes.ts";

/** A stream that is watched. HTTP/2 streams can be reset; others are destroyed. */
export interface Watched extends Readable {
  close?(code: number): void;
  _final?(callback: (error?: Error | null) => void): void;
}

export interface ReceiveBufferOptions {
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

/** What a chunk costs beside its bytes: many small ones hold far more than they carry. */
const CHUNK_BYTES = 512;

interface Entry {
  readonly peer: string;
  readonly stream: Watched;
  /** What it held when it was last looked at, and what has arrived since; 0 while it is read. */
  counted: number;
}

/** Streams that nobody reads at this moment; `counted` is the sum of theirs, and never less than what they hold. */
interface Group {
  readonly entries: Set<Entry>;
  counted: number;
}

/**
 * Bounds what arrived and was not read. HTTP/2 lets every stream of every session have a full window, since the session's own is
 * given back on arrival; where that exceeds the bound, whoever holds most is reset with the chunk that crosses it.
 */
export class ReceiveBuffers {
  readonly #onReset: (peer: string) => void;
  readonly #perPeer: number;
  readonly #inAll: number;
  /** By whoever sends on them. */
  readonly #stalled = new Map<string, Group>();
  readonly #watched = new WeakSet<Watched>();
  /** Where what is read on a stream goes. */
  readonly #sinks = new WeakMap<Watched, Writable>();
  #counted = 0;

  constructor({ memoryBytes, onReset = () => undefined }: ReceiveBufferOptions) {
    this.#onReset = onReset;
    this.#perPeer = memoryBytes / 8;
    this.#inAll = memoryBytes / 4;
  }

  /** Counts what waits on a stream that `peer` sends on, from now until it is closed. */
  watch(peer: string, stream: Watched): void {
    if (stream.destroyed || this.#watched.has(stream)) return;
    this.#watched.add(stream);
    const entry: Entry = { peer, stream, counted: 0 };
    const stall = (): void => this.#stall(entry);
    const flow = (): void => this.#flow(entry);
    this.#countArrivals(entry);
    stream.on("pause", stall).on("resume", flow);
    stream.once("close", () => {
      stream.off("pause", stall).off("resume", flow);
      flow();
    });
    if (stream.readableFlowing !== true) stall();
  }

  /** Counts what was read on a stream and waits to be sent by another, too. */
  forwardsTo(stream: Watched, sink: Writable): void {
    this.#sinks.set(stream, sink);
  }

  /** What waits at this moment, in bytes; without a peer, for all of them. */
  held(peer?: string): number {
    let held = 0;
    for (const [name, { entries }] of this.#stalled) {
      if (peer !== undefined && peer !== name) continue;
      for (const { stream } of entries) held += this.#heldBy(stream);
    }
    return held;
  }

  close(): void {
    this.#stalled.clear();
    this.#counted = 0;
  }

  /** A paused stream is still given what its window allows, and says nothing of it but this. */
  #countArrivals(entry: Entry): void {
    const { stream } = entry;
    const push = stream.push.bind(stream);
    stream.push = (chunk: unknown, encoding?: BufferEncoding) => {
      const hasRoom = push(chunk, encoding);
      if (chunk instanceof Uint8Array) this.#arrived(entry, chunk.length);
      return hasRoom;
    };
  }

  #arrived(entry: Entry, bytes: number): void {
    const group = this.#stalled.get(entry.peer);
    if (group?.entries.has(entry) !== true) return;
    this.#count(group, entry, entry.counted + bytes + CHUNK_BYTES);
    this.#bound(group);
  }

  #stall(entry: Entry): void {
    const group = this.#stalled.get(entry.peer) ?? { entries: new Set(), counted: 0 };
    if (group.entries.has(entry)) return;
    group.entries.add(entry);
    this.#stalled.set(entry.peer, group);
    this.#count(group, entry, this.#heldBy(entry.stream));
    this.#bound(group);
  }

  #flow(entry: Entry): void {
    const group = this.#stalled.get(entry.peer);
    if (group?.entries.delete(entry) !== true) return;
    this.#count(group, entry, 0);
    if (group.entries.size === 0) this.#stalled.delete(entry.peer);
  }

  #count(group: Group, entry: Entry, counted: number): void {
    const more = counted - entry.counted;
    entry.counted = counted;
    group.counted += more;
    this.#counted += more;
  }

  #bound(group: Group): void {
    if (group.counted > this.#perPeer) this.#cut(this.#perPeer, [group]);
    if (this.#counted > this.#inAll) this.#cut(this.#inAll, [...this.#stalled.values()]);
  }

  /** Looks at what was not sent meanwhile, and resets whichever streams hold most until the rest is within the bound. */
  #cut(boundBytes: number, groups: readonly Group[]): void {
    for (const group of groups)
      for (const entry of group.entries) this.#count(group, entry, this.#heldBy(entry.stream));
    let held = groups.reduce((sum, { counted }) => sum + counted, 0);
    if (held <= boundBytes) return;
    const entries = groups.flatMap((group) => [...group.entries]).toSorted((a, b) => b.counted - a.counted);
    for (const entry of entries) {
      if (held <= boundBytes) return;
      held -= entry.counted;
      this.#flow(entry);
      reset(entry.stream);
      this.#onReset(entry.peer);
    }
  }

  #heldBy(stream: Watched): number {
    const state: unknown = Reflect.get(stream, "_readableState");
    const chunks: unknown = typeof state === "object" && state !== null ? Reflect.get(state, "buffer") : undefined;
    const overhead = Array.isArray(chunks) ? chunks.length * CHUNK_BYTES : 0;
    return stream.readableLength + overhead + (this.#sinks.get(stream)?.writableLength ?? 0);
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
