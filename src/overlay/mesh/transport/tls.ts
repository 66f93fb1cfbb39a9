import { constants, createHash, type KeyObject } from "node:crypto";
import type { Duplex } from "node:stream";
import { connect, createSecureContext, TLSSocket, type SecureContext } from "node:tls";
import { SessionError, toError } from "../../../errors.ts";
import { P256PublicKey } from "../../../protocol/values/keys.ts";

/** Protocols of mesh sessions (ALPN); a connection without one of them is refused. */
export type MeshProtocol = "h2" | "holdfast-h2r" | "holdfast-peer";

/** Identity that this node proves in TLS handshakes. */
export interface MeshIdentity {
  readonly uid: string;
  /** RFC 7638 thumbprint of the public key. */
  readonly key: string;
  readonly context: SecureContext;
}

/** Key and protocol that the other side has proved. */
export interface Proof {
  /** RFC 7638 thumbprint of its public key. */
  readonly key: string;
  readonly protocol: MeshProtocol;
}

// The shorter key first: sufficient here, and less work per byte.
const CIPHERS = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

/** OpenSSL's name of P-256, and the uncompressed form of a point in a certificate (RFC 5480 §2.2): 4, x, y. */
const P256 = "prime256v1";
const POINT_BYTES = 65;
const UNCOMPRESSED = 4;

/** Creates a TLS 1.3 context without tickets (RFC 8446 §4.6.1): a resumed session would reuse an old proof. */
export function meshContext(key: string, cert: string): SecureContext {
  return createSecureContext({
    key,
    cert,
    minVersion: "TLSv1.3",
    maxVersion: "TLSv1.3",
    ciphers: CIPHERS,
    honorCipherOrder: true,
    secureOptions: constants.SSL_OP_NO_TICKET,
    sessionTimeout: 1,
  });
}

/** Starts TLS in the server role over a socket or stream; `whenProved` returns the result. */
export function acceptTls(carrier: Duplex, identity: MeshIdentity, protocols: readonly MeshProtocol[]): TLSSocket {
  return new TLSSocket(carrier, {
    isServer: true,
    secureContext: identity.context,
    requestCert: true,
    // `whenProved` checks keys; chains, names and dates are not checked.
    rejectUnauthorized: false,
    ALPNCallback: ({ protocols: offered }) => protocols.find((protocol) => offered.includes(protocol)),
  });
}

/** Starts TLS in the client role over a socket or stream; `whenProved` returns the result. */
export function dialTls(carrier: Duplex, identity: MeshIdentity, protocol: MeshProtocol): TLSSocket {
  return connect({
    socket: carrier,
    secureContext: identity.context,
    rejectUnauthorized: false,
    checkServerIdentity: () => undefined,
    ALPNProtocols: [protocol],
  });
}

/**
 * Waits until the other side has proved a key and agreed on a protocol; otherwise destroys the socket. The caller must
 * check that it is the expected key before anything else.
 * @throws {SessionError} `tls` if the handshake failed or was resumed, `alpn` without a protocol, `unknown-key` without
 * a key.
 */
export function whenProved(socket: TLSSocket, signal?: AbortSignal): Promise<Proof> {
  return new Promise((resolve, reject) => {
    const settle = (outcome: Proof | Error): void => {
      socket.off("secure", onSecure).off("close", onClose);
      signal?.removeEventListener("abort", onAbort);
      if (!(outcome instanceof Error)) {
        socket.off("error", onError);
        resolve(outcome);
        return;
      }
      // Later errors carry no information, but would end the process without a listener.
      socket.on("error", () => undefined).destroy();
      reject(outcome);
    };
    const onSecure = (): void => settle(judge(socket));
    const onError = (error: Error): void => settle(new SessionError(faultOf(error), error.message, { cause: error }));
    const onClose = (): void => settle(new SessionError("tls", "closed before the handshake completed"));
    const onAbort = (): void => settle(toError(signal?.reason));
    socket.on("secure", onSecure).on("error", onError).on("close", onClose);
    signal?.addEventListener("abort", onAbort);
    if (signal?.aborted === true) onAbort();
  });
}

/**
 * Closes a TLS socket and the stream below it together. TLS and HTTP/2 would wait for the other direction after one has
 * ended, but nothing more can arrive.
 */
export function endTogether(carrier: Duplex, socket: TLSSocket): void {
  carrier
    .on("error", () => undefined)
    .once("end", () => carrier.destroy())
    .once("close", () => socket.destroy());
  socket.on("error", () => undefined).once("close", () => carrier.destroy());
  if (carrier.destroyed) socket.destroy();
}

/** Returns the RFC 7638 thumbprint of the P-256 key that the other side has proved; undefined if its certificate has none. */
export function peerKey(socket: TLSSocket): string | undefined {
  // X509 objects would leave kilobytes per session in the C library's memory.
  const { asn1Curve, pubkey } = socket.getPeerCertificate(false);
  if (asn1Curve !== P256 || pubkey?.length !== POINT_BYTES || pubkey[0] !== UNCOMPRESSED) return undefined;
  return thumbprintOf(pubkey.toString("base64url", 1, 33), pubkey.toString("base64url", 33));
}

/** Returns the RFC 7638 thumbprint of a P-256 key; undefined for other keys. */
export function p256Thumbprint(key: KeyObject): string | undefined {
  const jwk = P256PublicKey.safeParse(key.export({ format: "jwk" })).data;
  if (jwk === undefined) return undefined;
  return thumbprintOf(jwk.x, jwk.y);
}

/** Coordinates in base64url; members of the JWK in the order of RFC 7638 §3. */
function thumbprintOf(x: string, y: string): string {
  return createHash("sha256")
    .update(JSON.stringify({ crv: "P-256", kty: "EC", x, y }))
    .digest("base64url");
}

function judge(socket: TLSSocket): Proof | Error {
  const protocol = meshProtocol(socket.alpnProtocol);
  if (socket.getProtocol() !== "TLSv1.3" || socket.isSessionReused())
    return new SessionError("tls", "the session was resumed, or is older than TLS 1.3");
  if (protocol === undefined) return new SessionError("alpn", "no common protocol (ALPN)");
  let key: string | undefined;
  try {
    key = peerKey(socket);
  } catch (error) {
    return new SessionError("unknown-key", "the certificate's key is unreadable", { cause: error });
  }
  if (key === undefined) return new SessionError("unknown-key", "the peer has no certificate of a P-256 key");
  // Only sockets of a tls.Server clear this flag, and HTTP/2 would wait for it.
  Reflect.set(socket, "secureConnecting", false);
  return { key, protocol };
}

function meshProtocol(name: string | false | null): MeshProtocol | undefined {
  return name === "h2" || name === "holdfast-h2r" || name === "holdfast-peer" ? name : undefined;
}

function faultOf(error: Error): "tls" | "alpn" {
  const code = "code" in error ? String(error.code) : "";
  return code.includes("APPLICATION_PROTOCOL") ? "alpn" : "tls";
}
