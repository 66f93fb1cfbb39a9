import {
  connect,
  performServerHandshake,
  type ClientHttp2Session,
  type Http2Session,
  type ServerHttp2Session,
  type ServerSessionOptions,
} from "node:http2";
import type { TLSSocket } from "node:tls";
import type { Clock } from "../../../host/clock.ts";
import { TokenBucket } from "../../../lib/async/token-bucket.ts";
import { ENHANCE_YOUR_CALM } from "../../flow/stream-reset.ts";
import { STREAM_WINDOW_BYTES } from "./receive-buffer.ts";

/** Maximum number of streams per session. */
export const MAX_STREAMS = 256;

interface SessionOptions {
  readonly clock: Pick<Clock, "elapsed">;
}

const MAX_HEADER_BYTES = 8192;
const MAX_HEADER_PAIRS = 32;
/** Window of the whole session. It must never be the limit: Node acknowledges bytes on arrival, so it would not bound memory. */
const SESSION_WINDOW_BYTES = 512 * 1024 * 1024;
/** Memory limit of a session, in MB; it includes data queued for sending. */
const SESSION_MEMORY_MB = 1024;
/**
 * Disables the runtime's reset limit, which ends a session after a thousand closed streams. StreamRouter refuses
 * streams instead.
 */
const NO_RESET_GUARD = { streamResetBurst: 2 ** 32 - 1, streamResetRate: 2 ** 32 - 1 };
/** Documented, but missing from the types. */
const UNTYPED = { maxOutstandingSettings: 4 };
const CONTROL_RATE = { perSecond: 16, burst: 64 };

/** Creates an HTTP/2 session in the server role on an authenticated socket. */
export function serverSession(socket: TLSSocket, options: SessionOptions): ServerHttp2Session {
  const given = optionsOf();
  const settings = { ...given.settings, enableConnectProtocol: true };
  const session = performServerHandshake(socket, { ...given, settings });
  // A stream may fail before anything listens for its error.
  session.on("stream", (stream) => stream.on("error", ignore));
  // The TLS handshake is complete, so the session is ready.
  return guard(session, options);
}

/** Creates an HTTP/2 session in the client role on an authenticated socket; `authority` is the other node's uid. */
export function clientSession(socket: TLSSocket, authority: string, options: SessionOptions): ClientHttp2Session {
  const given = optionsOf();
  // The other side may not open streams.
  const settings = { ...given.settings, enablePush: false, maxConcurrentStreams: 0 };
  return guard(connect(`https://${authority}`, { ...given, settings, createConnection: () => socket }), options);
}

function optionsOf(): ServerSessionOptions {
  return {
    settings: {
      initialWindowSize: STREAM_WINDOW_BYTES,
      maxConcurrentStreams: MAX_STREAMS,
      maxHeaderListSize: MAX_HEADER_BYTES,
    },
    peerMaxConcurrentStreams: MAX_STREAMS,
    maxHeaderListPairs: MAX_HEADER_PAIRS,
    maxSendHeaderBlockLength: MAX_HEADER_BYTES,
    maxSettings: 16,
    maxOutstandingPings: 8,
    maxSessionInvalidFrames: 100,
    maxSessionRejectedStreams: 10_000,
    maxSessionMemory: SESSION_MEMORY_MB,
    ...NO_RESET_GUARD,
    ...UNTYPED,
  };
}

/** Ends a session that sends too many control frames: each one must be answered. */
function guard<S extends Http2Session>(session: S, { clock }: SessionOptions): S {
  const control = new TokenBucket(CONTROL_RATE, clock.elapsed());
  const spend = (): void => {
    if (!control.takeIfAvailable(1, clock.elapsed()) && !session.destroyed)
      session.destroy(undefined, ENHANCE_YOUR_CALM);
  };
  session.on("error", ignore).on("ping", spend).on("remoteSettings", spend);
  const widen = (): void => session.setLocalWindowSize(SESSION_WINDOW_BYTES);
  if (session.connecting) session.once("connect", widen);
  else widen();
  return session;
}

/**
 * Stops reading from a socket for `ms` milliseconds, so that TCP slows down the sender. HTTP/2 owns the socket's handle
 * and has no such function. Does nothing if the handle is not as expected.
 */
export function pauseReading(socket: TLSSocket, clock: Pick<Clock, "after">, ms: number): void {
  if (!call(socket, "readStop")) return;
  clock.after(ms, () => call(socket, "readStart"));
}

function call(socket: TLSSocket, name: "readStop" | "readStart"): boolean {
  const handle: unknown = Reflect.get(socket, "_handle");
  if (socket.destroyed || typeof handle !== "object" || handle === null) return false;
  const method: unknown = Reflect.get(handle, name);
  if (typeof method !== "function") return false;
  Reflect.apply(method, handle, []);
  return true;
}

function ignore(): void {
  return undefined;
}
