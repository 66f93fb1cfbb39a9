import { request as httpRequest } from "node:http";
import { connect as netConnect, type Socket } from "node:net";
import { connect as tlsConnect } from "node:tls";
import { P256PublicKey, thumbprint } from "../../protocol/values/keys.ts";
import { settled } from "./dial.ts";

export interface TcpTarget {
  readonly address: string;
  readonly port: number;
  /** Source address. */
  readonly local?: string | undefined;
}

/** Opens a connection to one address. Rejects with the system's error or the signal's reason. */
export function openTcp({ address, port, local }: TcpTarget, signal: AbortSignal): Promise<Socket> {
  const from = local === undefined ? {} : { localAddress: local };
  return settled(netConnect({ host: address, port, noDelay: true, ...from }), "connect", signal);
}

/**
 * Does a TLS handshake with a gateway and returns the RFC 7638 thumbprint of its key; undefined for a key that no
 * gateway has. Closes the connection. Rejects without TLS 1.3 or the nodes' protocol.
 */
export async function gatewayKey(raw: Socket, signal: AbortSignal): Promise<string | undefined> {
  const tls = tlsConnect({
    socket: raw,
    minVersion: "TLSv1.3",
    // Only the key counts; chains, names and dates are not checked.
    rejectUnauthorized: false,
    ALPNProtocols: ["holdfast-h2r"],
  });
  try {
    const socket = await settled(tls, "secureConnect", signal);
    const shown = socket.getPeerX509Certificate()?.publicKey.export({ format: "jwk" });
    const key = P256PublicKey.safeParse(shown);
    return key.success ? await thumbprint(key.data) : undefined;
  } finally {
    tls.on("error", () => undefined).destroy();
    raw.destroy();
  }
}

/** Status and headers of an HTTP response. */
export interface HttpHead {
  readonly status: number;
  /** `Date` header (RFC 9110 §6.6.1) in Unix milliseconds. */
  readonly date: number | undefined;
  readonly location: string | undefined;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
}

/** Requests a path over an open connection, reads the head of the response, and closes the connection. */
export function httpHead(socket: Socket, url: URL, signal: AbortSignal): Promise<HttpHead> {
  return new Promise<HttpHead>((resolve, reject) => {
    const outgoing = httpRequest(url, {
      // The socket does TLS itself.
      protocol: "http:",
      headers: { host: url.host, connection: "close" },
      createConnection: () => socket,
      signal,
    });
    outgoing.on("error", reject);
    outgoing.once("close", () => reject(new Error("the connection was closed without an answer")));
    outgoing.once("response", (response) => {
      response.on("error", () => undefined);
      const { headers } = response;
      const { date, location } = headers;
      const at = date === undefined ? Number.NaN : Date.parse(date);
      resolve({ status: response.statusCode ?? 0, date: Number.isNaN(at) ? undefined : at, location, headers });
    });
    outgoing.end();
  }).finally(() => socket.destroy());
}
