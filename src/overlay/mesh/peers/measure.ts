import { constants, type ClientHttp2Stream } from "node:http2";
import { SessionError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { PathId } from "../paths/peer-dialer.ts";
import { resetStream } from "../../flow/stream-reset.ts";
import type { Tunnel } from "./tunnel.ts";
import type { Tunnels } from "./tunnels.ts";

export interface EchoRequest {
  readonly peer: string;
  /** Use this path only; for gateways only. */
  readonly path?: string | undefined;
  readonly bytes: number;
  readonly timeoutMs: number;
}

export interface PerfRequest {
  readonly peer: string;
  readonly path?: string | undefined;
  readonly bytes: number;
  readonly messageBytes: number;
  /** Maximum bytes sent and not acknowledged. */
  readonly windowBytes: number;
  readonly signal: AbortSignal;
  /** Called with the bytes that have arrived, four times a second. */
  readonly onProgress: (bytes: number) => void;
}

const PROGRESS_MS = 250;
/** An upload fails after this time without progress. */
const STALL_MS = 30_000;
const MAX_LINE = 32;

/** Measures the connection to a peer inside the tunnel. */
export class Measure {
  readonly #clock: Clock;
  readonly #tunnels: Tunnels;

  constructor(clock: Clock, tunnels: Tunnels) {
    this.#clock = clock;
    this.#tunnels = tunnels;
  }

  /**
   * Sends bytes and waits until they return.
   * @throws {SessionError} `timeout`, `not-found` for an unknown peer or path, `not-connected` without a tunnel.
   */
  async echo({ peer, path, bytes, timeoutMs }: EchoRequest): Promise<PathId & { readonly rttMs: number }> {
    const late = new AbortController();
    const cancel = this.#clock.after(timeoutMs, () =>
      late.abort(new SessionError("timeout", `${peer} did not answer`)),
    );
    try {
      const { stream, tunnel } = await this.#open(peer, path, "/echo", late.signal);
      const startedAt = this.#clock.elapsed();
      let back = 0;
      stream.on("data", (chunk: Buffer) => (back += chunk.length)).end(Buffer.alloc(bytes));
      await ended(stream, late.signal);
      if (back !== bytes) throw new SessionError("not-connected", `${peer} returned ${back} of ${bytes} bytes`);
      return { ...tunnel.pathId, rttMs: this.#clock.elapsed() - startedAt };
    } finally {
      cancel();
    }
  }

  /**
   * Uploads bytes in messages within a window.
   * @throws {SessionError} as `echo`, and `cancelled`.
   */
  async perf(request: PerfRequest): Promise<PathId & { readonly bytes: number; readonly ms: number }> {
    const { peer, path, bytes, onProgress } = request;
    const stalled = new AbortController();
    const cancelled = new AbortController();
    const onAbort = (): void => cancelled.abort(new SessionError("cancelled", "cancelled"));
    request.signal.addEventListener("abort", onAbort);
    if (request.signal.aborted) onAbort();
    const signal = AbortSignal.any([cancelled.signal, stalled.signal]);
    let cancelCheck: (() => void) | undefined;
    try {
      const { stream, tunnel } = await this.#open(peer, path, "/perf", signal);
      const startedAt = this.#clock.elapsed();
      const upload = new Upload(stream, request);
      let reported = 0;
      let movedAt = startedAt;
      const checkProgress = (): void => {
        const now = this.#clock.elapsed();
        if (upload.arrived > reported) {
          movedAt = now;
          onProgress(upload.arrived);
        }
        reported = upload.arrived;
        if (now - movedAt >= STALL_MS) stalled.abort(new SessionError("timeout", `${peer} stopped reading`));
        else cancelCheck = this.#clock.after(PROGRESS_MS, checkProgress);
      };
      cancelCheck = this.#clock.after(PROGRESS_MS, checkProgress);
      upload.go();
      await ended(stream, signal);
      if (upload.arrived !== bytes)
        throw new SessionError("not-connected", `${peer} received ${upload.arrived} of ${bytes} bytes`);
      return { ...tunnel.pathId, bytes, ms: this.#clock.elapsed() - startedAt };
    } finally {
      cancelCheck?.();
      request.signal.removeEventListener("abort", onAbort);
    }
  }

  async #open(
    peer: string,
    path: string | undefined,
    service: "/echo" | "/perf",
    signal: AbortSignal,
  ): Promise<{ readonly stream: ClientHttp2Stream; readonly tunnel: Tunnel }> {
    const tunnel = await this.#reserve(peer, path, signal);
    const headers = { ":method": "POST", ":path": service, ":scheme": "https", ":authority": `${peer}:443` };
    const stream = tunnel.open(headers, { endStream: false });
    if (stream === undefined) throw new SessionError("not-connected", `the tunnel to ${peer} has just ended`);
    stream.on("error", () => undefined);
    return { stream, tunnel };
  }

  async #reserve(peer: string, path: string | undefined, signal: AbortSignal): Promise<Tunnel> {
    if (!this.#tunnels.knows(peer, path)) throw new SessionError("not-found", `no such peer or path: ${peer}`);
    const reserved = this.#tunnels.reserve(peer, path);
    // After an abort, releases the place that is reserved too late.
    const giveUp = (): void => void reserved.then((tunnel) => tunnel.giveUp()).catch(() => undefined);
    try {
      return await orAborted(reserved, signal, giveUp);
    } catch (error) {
      if (signal.aborted) throw error;
      throw new SessionError("not-connected", toError(error).message, { cause: error });
    }
  }
}

/** An upload: sends messages within the window and counts what has arrived. */
class Upload {
  arrived = 0;
  readonly #stream: ClientHttp2Stream;
  readonly #bytes: number;
  readonly #windowBytes: number;
  readonly #message: Buffer;
  #sent = 0;
  #line = "";

  constructor(stream: ClientHttp2Stream, { bytes, messageBytes, windowBytes }: PerfRequest) {
    this.#stream = stream;
    this.#bytes = bytes;
    this.#windowBytes = windowBytes;
    this.#message = Buffer.alloc(Math.min(messageBytes, windowBytes, bytes));
    stream
      .on("drain", () => this.go())
      .on("data", (chunk: Buffer) => {
        this.#read(chunk.toString("latin1"));
        this.go();
      });
  }

  go(): void {
    while (this.#sent < this.#bytes && !this.#stream.writableNeedDrain && !this.#stream.destroyed) {
      const size = Math.min(this.#message.length, this.#bytes - this.#sent);
      if (this.#sent + size - this.arrived > this.#windowBytes) return;
      this.#sent += size;
      this.#stream.write(this.#message.subarray(0, size));
    }
    if (this.#sent >= this.#bytes && !this.#stream.writableEnded) this.#stream.end();
  }

  /** Reads the last complete line; ignores an invalid total, or one beyond what was sent. */
  #read(text: string): void {
    const lines = (this.#line + text).split("\n");
    this.#line = (lines.pop() ?? "").slice(0, MAX_LINE);
    const total = Number(lines.at(-1) ?? this.arrived);
    if (Number.isInteger(total) && total > this.arrived && total <= this.#sent) this.arrived = total;
  }
}

/** Resolves when the stream has ended in order. */
function ended(stream: ClientHttp2Stream, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const clean = (): void => signal.removeEventListener("abort", onAbort);
    const onAbort = (): void => {
      clean();
      resetStream(stream, constants.NGHTTP2_CANCEL);
      reject(toError(signal.reason));
    };
    stream.once("close", () => {
      clean();
      if (stream.rstCode === 0 && stream.readableEnded) resolve();
      else reject(new SessionError("not-connected", `the stream was reset with code ${stream.rstCode}`));
    });
    signal.addEventListener("abort", onAbort);
    if (signal.aborted) onAbort();
  });
}

function orAborted<T>(promise: Promise<T>, signal: AbortSignal, onAborted: () => void): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      onAborted();
      reject(toError(signal.reason));
    };
    if (signal.aborted) return onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    promise.then(
      (value) => {
        signal.removeEventListener("abort", onAbort);
        if (!signal.aborted) resolve(value);
      },
      (error: unknown) => {
        signal.removeEventListener("abort", onAbort);
        reject(toError(error));
      },
    );
  });
}
