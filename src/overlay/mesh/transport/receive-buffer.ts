import { totalmem } from "node:os";
import type { Readable, Writable } from "node:stream";
import { ENHANCE_YOUR_CALM } from "../../flow/stream-reset.ts";

/** A stream to watch. HTTP/2 streams can be reset; others are destroyed. */
export interface Watched extends Readable {
  close?(code: number): void;
  _final?(callback: (error?: Error | null) => void): void;
}

export interface ReceiveBufferOptions {
  /** Memory of the process in bytes; an eighth of it may be buffered per peer, a quarter for all. */
  readonly memoryBytes: number;
  /** Called with the peer whose stream was reset. */
  readonly onReset?: (peer: string) => void;
}

/**
 * Receive window per stream. HTTP/2 announces free space only when half of it is free: one flow needs 4 MiB for more
 * than 500 Mb/s at a round trip of 20 ms; with 2 MiB it reached 350 Mb/s.
 */
export const STREAM_WINDOW_BYTES = 4 * 1024 * 1024;

/** Overhead per chunk: many small chunks hold far more memory than their bytes. */
const CHUNK_BYTES = 512;

interface Entry {
  readonly peer: string;
  readonly stream: Watched;
  /** Bytes held at the last reading plus those that arrived since; 0 while the stream is read. */
  counted: number;
}

/** Paused streams of one peer; `counted` is their sum, and never less than what they hold. */
interface Group {
  readonly entries: Set<Entry>;
  counted: number;
}

/**
 * Limits the bytes that arrived and were not read. HTTP/2 grants every stream of every session a full window. Beyond
 * the limit, the stream that holds most is reset.
 */
export class ReceiveBuffers {
  readonly #onReset: (peer: string) => void;
  readonly #perPeer: number;
  readonly #inAll: number;
  /** Buffers by sending peer. */
  readonly #stalled = new Map<string, Group>();
  readonly #watched = new WeakSet<Watched>();
  /** Destination of the bytes read from a stream. */
  readonly #sinks = new WeakMap<Watched, Writable>();
  #counted = 0;

  constructor({ memoryBytes, onReset = () => undefined }: ReceiveBufferOptions) {
    this.#onReset = onReset;
    this.#perPeer = memoryBytes / 8;
    this.#inAll = memoryBytes / 4;
  }

  /** Counts the buffered bytes of a stream from `peer` until it closes. */
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

  /** Also counts bytes read from a stream that wait to be sent by another. */
  forwardsTo(stream: Watched, sink: Writable): void {
    this.#sinks.set(stream, sink);
  }

  /** Bytes buffered for a peer, or for all peers. */
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

  /** A paused stream still receives what its window allows, and only `push` shows it. */
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

  /** Recounts the streams and resets those that hold most until the sum is within the limit. */
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

/** Returns the memory limit of this process in bytes: that of its control group, or the machine's memory. */
export function memoryLimit(): number {
  const bound = process.constrainedMemory();
  return bound > 0 && bound < totalmem() ? bound : totalmem();
}

function reset(stream: Watched): void {
  // Otherwise closing would first end the stream in order, and the other side would take the bytes it has as complete.
  stream._final = (callback) => callback();
  stream.close?.(ENHANCE_YOUR_CALM);
  // Frees the unread bytes immediately, not only when the other side has answered.
  stream.destroy();
}
