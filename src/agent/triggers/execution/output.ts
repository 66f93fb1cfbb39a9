import type { Clock } from "../../../host/clock.ts";
import type { Chunk, TriggerChannel } from "./trigger.ts";

/** Receives the output of one stream. */
export interface Output {
  /** True after the output limit; the rest is dropped. */
  readonly isTruncated: boolean;
  /** Takes one chunk; resolves when there is room for more. */
  write(chunk: Chunk): Promise<void>;
  /** Flushes buffered output. */
  close(): Promise<void>;
}

/** As JSON the buffered output must fit one message of the channel (1 MiB) with its envelope. */
const MAX_BUFFERED_BYTES = 1024 * 1024 - 16 * 1024;
const MAX_CHUNK_BYTES = 16 * 1024;
const MAX_STREAM_BYTES = 50 * 1024 * 1024;
const FLUSH_MS = 100;
/** Time that output may wait for room after the trigger was cancelled. */
const LAST_WORDS_MS = 200;

/** Terminal sequences are left to the viewer, but a NUL ends the text in many of them. */
const clean = (text: string): string => text.replaceAll("\0", "");

/** Collects the output of the reply, all kinds as one text. */
export class BufferedOutput implements Output {
  isTruncated = false;
  readonly #onFull: () => void;
  readonly #parts: string[] = [];
  #bytes = 0;

  constructor(onFull: () => void) {
    this.#onFull = onFull;
  }

  get text(): string {
    return this.#parts.join("");
  }

  write(chunk: Chunk): Promise<void> {
    if (chunk.kind === "percent" || this.isTruncated) return Promise.resolve();
    const text = chunk.kind === "json" ? `${JSON.stringify(chunk.data)}\n` : clean(chunk.data);
    const room = MAX_BUFFERED_BYTES - this.#bytes;
    const fitting = fitAsJson(text, room);
    this.#parts.push(fitting.text);
    this.#bytes += fitting.bytes;
    if (fitting.text.length < text.length) {
      this.isTruncated = true;
      this.#onFull();
    }
    return Promise.resolve();
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

export interface StreamedOutputOptions {
  readonly id: string;
  readonly channel: TriggerChannel;
  readonly clock: Clock;
  /** Aborted when the trigger ends; then output waits briefly for room. */
  readonly signal: AbortSignal;
  readonly onFull: () => void;
}

/** Sends output as it arrives: whole lines at once, the rest after 100 ms, in pieces of at most 16 KiB. */
export class StreamedOutput implements Output {
  isTruncated = false;
  readonly #options: StreamedOutputOptions;
  #kind: "stdout" | "stderr" = "stdout";
  #held = "";
  #cancelTimer: (() => void) | undefined;
  #tail: Promise<void> = Promise.resolve();
  #seq = 0;
  #bytes = 0;

  constructor(options: StreamedOutputOptions) {
    this.#options = options;
  }

  write(chunk: Chunk): Promise<void> {
    if (this.isTruncated) return Promise.resolve();
    if (chunk.kind === "json" || chunk.kind === "percent") {
      this.#flush(this.#held.length);
      this.#enqueue(chunk, Buffer.byteLength(JSON.stringify(chunk.data)));
      return this.#tail;
    }
    if (chunk.kind !== this.#kind) this.#flush(this.#held.length);
    this.#kind = chunk.kind;
    this.#held += clean(chunk.data);
    this.#flush(this.#held.length >= MAX_CHUNK_BYTES ? this.#held.length : this.#held.lastIndexOf("\n") + 1);
    if (this.#held !== "") {
      this.#cancelTimer ??= this.#options.clock.after(FLUSH_MS, () => this.#flush(this.#held.length));
    }
    return this.#tail;
  }

  close(): Promise<void> {
    this.#flush(this.#held.length);
    return this.#tail;
  }

  #flush(length: number): void {
    const text = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    if (this.#held === "") {
      this.#cancelTimer?.();
      this.#cancelTimer = undefined;
    }
    for (const data of split(text)) this.#enqueue({ kind: this.#kind, data }, Buffer.byteLength(data));
  }

  #enqueue(chunk: Chunk, bytes: number): void {
    if (this.isTruncated) return;
    this.#bytes += bytes;
    if (this.#bytes > MAX_STREAM_BYTES) {
      this.isTruncated = true;
      this.#options.onFull();
      return;
    }
    this.#tail = this.#tail.then(() => this.#send(chunk));
  }

  async #send(chunk: Chunk): Promise<void> {
    const { channel, id } = this.#options;
    if (channel.signal.aborted || !(await this.#hasRoom())) {
      this.isTruncated = true;
      return;
    }
    const seq = this.#seq;
    this.#seq += 1;
    channel.progress({ id, seq, ...chunk });
  }

  /** Waits for room in the channel; gives up shortly after the trigger was cancelled, or when the channel ends. */
  async #hasRoom(): Promise<boolean> {
    const { channel, clock, signal } = this.#options;
    const done = new AbortController();
    let cancelTimer: (() => void) | undefined;
    const gaveUp = new Promise<boolean>((resolve) => {
      const lastWords = (): void => {
        cancelTimer = clock.after(LAST_WORDS_MS, () => resolve(false));
      };
      if (signal.aborted) lastWords();
      signal.addEventListener("abort", lastWords, { signal: done.signal });
      channel.signal.addEventListener("abort", () => resolve(false), { signal: done.signal });
    });
    const ready = channel.ready().then(
      () => true,
      () => false,
    );
    try {
      return await Promise.race([ready, gaveUp]);
    } finally {
      done.abort();
      cancelTimer?.();
    }
  }
}

/** Splits a text into pieces of at most 16 KiB of UTF-8, never inside a character. */
function* split(text: string): Generator<string> {
  const room = new Uint8Array(MAX_CHUNK_BYTES);
  const encoder = new TextEncoder();
  for (let at = 0; at < text.length;) {
    const { read } = encoder.encodeInto(text.slice(at, at + MAX_CHUNK_BYTES), room);
    yield text.slice(at, at + read);
    at += read;
  }
}

/** Returns the longest prefix of a text that takes at most `room` bytes in a JSON string, and its size. */
function fitAsJson(text: string, room: number): { readonly text: string; readonly bytes: number } {
  const bytes = jsonBytes(text);
  if (bytes <= room) return { text, bytes };
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (jsonBytes(text.slice(0, middle)) <= room) low = middle;
    else high = middle - 1;
  }
  // Half a surrogate pair takes more bytes, escaped, than the pair, so the longest prefix never ends in one.
  const fitting = text.slice(0, low);
  return { text: fitting, bytes: jsonBytes(fitting) };
}

function jsonBytes(text: string): number {
  return Buffer.byteLength(JSON.stringify(text)) - 2;
}
