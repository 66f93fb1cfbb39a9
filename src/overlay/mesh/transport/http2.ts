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
import { Allowance } from "../../limits/allowance.ts";
import { ENHANCE_YOUR_CALM } from "./stream-codes.ts";
import { STREAM_WINDOW_BYTES } from "./receive-buffer.ts";

/** Streams that a hop session may have at a time. */
export const HOP_STREAMS = 256;

export interface SessionLimits {
  readonly clock: Pick<Clock, "elapsed">;
  /** Streams at a time that the other side may open, or that this one expects to be allowed. */
  readonly maxStreams?: number;
}

const MAX_HEADER_BYTES = 8192;
const MAX_HEADER_PAIRS = 32;
/** The session's window must never be what limits: it is given back on arrival, so it would protect nothing. */
const SESSION_WINDOW_BYTES = 512 * 1024 * 1024;
/** What the runtime may allocate for a session, in MB; it counts what is queued to be sent, too. */
const SESSION_MEMORY_MB = 1024;
/** The runtime's own guard ends a session after a thousand closes, which is what ordinary flows come to; ours refuses streams instead. */
const NO_RESET_GUARD = { streamResetBurst: 2 ** 32 - 1, streamResetRate: 2 ** 32 - 1 };
/** Documented, and missing from the types. */
const UNTYPED = { maxOutstandingSettings: 4 };
const CONTROL_BURST = 64;
const CONTROL_PER_SECOND = 16;

/** Makes an HTTP/2 session of a proved socket, of which the other side is the client. */
export function serverSession(socket: TLSSocket, limits: SessionLimits): ServerHttp2Session {
  const options = optionsOf(limits);
  const settings = { ...options.settings, enableConnectProtocol: true };
  const session = performServerHandshake(socket, { ...options, settings });
  // A stream may fail at any moment, and nobody need be listening then.
  session.on("stream", (stream) => stream.on("error", ignore));
  // With the handshake behind it the session can be used at once.
  return guard(session, limits);
}

/** Makes an HTTP/2 session of a proved socket, of which this side is the client; `authority` is the other node's uid. */
export function clientSession(socket: TLSSocket, authority: string, limits: SessionLimits): ClientHttp2Session {
  const options = optionsOf(limits);
  // The other side may open nothing.
  const settings = { ...options.settings, enablePush: false, maxConcurrentStreams: 0 };
  return guard(connect(`https://${authority}`, { ...options, settings, createConnection: () => socket }), limits);
}

function optionsOf({ maxStreams = HOP_STREAMS }: SessionLimits): ServerSessionOptions {
  return {
    settings: {
      initialWindowSize: STREAM_WINDOW_BYTES,
      maxConcurrentStreams: maxStreams,
      maxHeaderListSize: MAX_HEADER_BYTES,
    },
    peerMaxConcurrentStreams: maxStreams,
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

/** Whoever sends control frames without end is cut off: each must be answered, and none carries anything. */
function guard<S extends Http2Session>(session: S, { clock }: SessionLimits): S {
  const control = new Allowance(clock, CONTROL_BURST, CONTROL_PER_SECOND);
  const spend = (): void => {
    if (!control.take() && !session.destroyed) session.destroy(undefined, ENHANCE_YOUR_CALM);
  };
  session.on("error", ignore).on("ping", spend).on("remoteSettings", spend);
  const widen = (): void => session.setLocalWindowSize(SESSION_WINDOW_BYTES);
  if (session.connecting) session.once("connect", widen);
  else widen();
  return session;
}

function ignore(): void {
  return undefined;
}
