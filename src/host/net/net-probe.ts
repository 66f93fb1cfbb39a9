import { request as httpRequest } from "node:http";
import { connect as netConnect, type Socket } from "node:net";
import { connect as tlsConnect } from "node:tls";
import { P256PublicKey, thumbprint } from "../../protocol/values/keys.ts";
import { settled } from "./dial.ts";

export interface TcpTarget {
  readonly address: string;
  readonly port: number;
  /** The address to leave from. */
  readonly local?: string | undefined;
}

/** Opens one connection to one address. Rejects with the system's error, or the signal's reason. */
export function openTcp({ address, port, local }: TcpTarget, signal: AbortSignal): Promise<Socket> {
  const from = local === undefined ? {} : { localAddress: local };
  return settled(netConnect({ host: address, port, noDelay: true, ...from }), "connect", signal);
}

/**
 * Shakes hands as a node that dials a gateway and tells which key that proves: its RFC 7638 thumbprint, or undefined for one that no
 * gateway has. Nothing is proved to it, so it ends the connection afterwards. Rejects when it does not speak TLS 1.3 or not for nodes.
 */
export async function gatewayKey(raw: Socket, signal: AbortSignal): Promise<string | undefined> {
  const tls = tlsConnect({
    socket: raw,
    minVersion: "TLSv1.3",
    // Of chains, names and dates nothing is asked: the key alone counts.
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

/** The head of an answer over HTTP. */
export interface HttpHead {
  readonly status: number;
  /** By the `Date` header (RFC 9110 §6.6.1), in Unix milliseconds. */
  readonly date: number | undefined;
  readonly location: string | undefined;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
}

/** Asks for a path over an open connection, which is closed afterwards, and reads the head of the answer alone. */
export function httpHead(socket: Socket, url: URL, signal: AbortSignal): Promise<HttpHead> {
  return new Promise<HttpHead>((resolve, reject) => {
    const outgoing = httpRequest(url, {
      // TLS is the socket's own business.
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
