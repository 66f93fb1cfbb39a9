// TLS 1.3 and HTTP/2 as a tunnel needs them, set once for whatever is compared.
import {
  connect as connectHttp2,
  performServerHandshake,
  type ClientHttp2Session,
  type ServerHttp2Session,
} from "node:http2";
import type { Duplex } from "node:stream";
import type { TlsOptions } from "node:tls";
import { aKey, certificateOf } from "./certificate.ts";

const STREAM_WINDOW = 4 * 1024 * 1024;
/** Never what limits: Node returns what has arrived at once. */
const SESSION_WINDOW = 64 * 1024 * 1024;

/** Options of both ends: keys proved both ways, no resumption, nobody's word believed about names. */
export const tlsLayer = {
  ...certificateOf(aKey()),
  minVersion: "TLSv1.3",
  ciphers: "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256",
  requestCert: true,
  rejectUnauthorized: false,
  sessionTimeout: 1,
} satisfies TlsOptions;

const http2Layer = {
  settings: { initialWindowSize: STREAM_WINDOW, maxConcurrentStreams: 1024, enablePush: false },
  // Node's own limits end a session after some thousand ordinary streams, or with some hundred that are stalled.
  maxSessionMemory: 4096,
  streamResetBurst: 1_000_000,
  streamResetRate: 1_000_000,
};

/** The client's end of an HTTP/2 session over a stream that is connected already, whoever dialled it. */
export function clientOver(stream: Duplex): ClientHttp2Session {
  const session = connectHttp2("https://bench", { ...http2Layer, createConnection: () => stream });
  return widened(session);
}

/** The server's end. */
export function serverOver(stream: Duplex): ServerHttp2Session {
  return widened(performServerHandshake(stream, http2Layer));
}

function widened<Session extends ClientHttp2Session | ServerHttp2Session>(session: Session): Session {
  session.on("error", () => undefined);
  const widen = (): void => session.setLocalWindowSize(SESSION_WINDOW);
  if (session.connecting) session.once("connect", widen);
  else widen();
  return session;
}

/** Both ways, each end passed on; an error of one ends the other. */
export function splice(one: Duplex, other: Duplex): void {
  one.on("error", () => other.destroy()).pipe(other);
  other.on("error", () => one.destroy()).pipe(one);
}
