import { constants, type IncomingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import type { Clock } from "../../../host/clock.ts";
import { resetStream } from "../../flow/stream-reset.ts";

/** Limits per peer of concurrent requests, so that a peer cannot consume this node's work and memory. */
const MAX_ECHOES = 8;
const MAX_PERFS = 2;
const MAX_ECHO_BYTES = 65_000;
const MAX_PERF_BYTES = 1_000_000_000;
const ECHO_MS = 60_000;
const PERF_MS = 600_000;

const { NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_REFUSED_STREAM } = constants;

/** Answers the measurements of peers: `/echo` returns the bytes, `/perf` reports how many have arrived. */
export class MeasureResponder {
  readonly #clock: Clock;
  readonly #running = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Answers the stream if it is a measurement; reports whether it was. */
  take(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, peer: string): boolean {
    if (headers[":method"] !== "POST") return false;
    switch (headers[":path"]) {
      case "/echo":
        if (this.#begin(stream, `echo ${peer}`, MAX_ECHOES, ECHO_MS)) answerEcho(stream);
        return true;
      case "/perf":
        if (this.#begin(stream, `perf ${peer}`, MAX_PERFS, PERF_MS)) answerPerf(stream);
        return true;
      default:
        return false;
    }
  }

  #begin(stream: ServerHttp2Stream, key: string, most: number, ms: number): boolean {
    const running = this.#running.get(key) ?? 0;
    stream.on("error", ignore);
    if (running >= most) {
      resetStream(stream, NGHTTP2_REFUSED_STREAM);
      return false;
    }
    this.#running.set(key, running + 1);
    const cancel = this.#clock.after(ms, () => resetStream(stream, NGHTTP2_ENHANCE_YOUR_CALM));
    stream.once("close", () => {
      cancel();
      const left = (this.#running.get(key) ?? 1) - 1;
      if (left === 0) this.#running.delete(key);
      else this.#running.set(key, left);
    });
    return true;
  }
}

function answerEcho(stream: ServerHttp2Stream): void {
  let bytes = 0;
  stream.respond({ ":status": 200 });
  stream
    .on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > MAX_ECHO_BYTES) resetStream(stream, NGHTTP2_ENHANCE_YOUR_CALM);
      else stream.write(chunk);
    })
    .on("end", () => stream.end());
}

function answerPerf(stream: ServerHttp2Stream): void {
  let bytes = 0;
  let isReported = true;
  const tell = (): void => {
    if (isReported || stream.destroyed || stream.writableNeedDrain) return;
    isReported = true;
    stream.write(`${bytes}\n`);
  };
  stream.respond({ ":status": 200 });
  stream
    .on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > MAX_PERF_BYTES) return resetStream(stream, NGHTTP2_ENHANCE_YOUR_CALM);
      if (!isReported) return;
      // Sends one line per turn of the event loop.
      isReported = false;
      setImmediate(tell);
    })
    .on("drain", tell)
    .on("end", () => stream.end(`${bytes}\n`));
}

function ignore(): void {}
