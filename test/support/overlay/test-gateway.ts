import { createPublicKey } from "node:crypto";
import {
  connect as connectHttp2,
  createServer as createHttp2Server,
  performServerHandshake,
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { AddressInfo } from "node:net";
import { createServer as createTlsServer, type TLSSocket } from "node:tls";
import { onTestFinished } from "vitest";
import { meshContext, p256Thumbprint, type MeshIdentity } from "../../../src/overlay/mesh/transport/tls.ts";
import { testCertificate, type TestCertificate } from "../certificates.ts";
import { waitFor } from "../wait-for.ts";

/** A gateway of the test: accepts hop sessions of both kinds, with the test's reactions. */
export interface TestGateway {
  readonly port: number;
  readonly key: string;
  readonly certificate: TestCertificate;
  /** Open sessions that dialled inward, newest last, and those that dialled outward. */
  readonly inbound: readonly ClientHttp2Session[];
  readonly outbound: readonly ServerHttp2Session[];
  /** Connections that completed TLS since the start. */
  readonly connections: number;
  /** Probes answered since the start. */
  pings(): number;
  /** Answers a CONNECT of the node; echoes by default. */
  onConnect: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;
  /** Opens a stream to the node on its newest inward session. */
  open(headers: IncomingHttpHeaders): Promise<ClientHttp2Stream>;
  /** Closes everything and stops listening. */
  stop(): Promise<void>;
}

/** A gateway on a loopback address, with a new key by default. */
export async function testGateway(
  place: { readonly host?: string; readonly port?: number; readonly certificate?: TestCertificate } = {},
): Promise<TestGateway> {
  const certificate = place.certificate ?? (await testCertificate({ hosts: [] }));
  const inbound: ClientHttp2Session[] = [];
  const outbound: ServerHttp2Session[] = [];
  const sockets = new Set<TLSSocket>();
  let connections = 0;
  let pings = 0;
  const http2 = createHttp2Server();
  const server = createTlsServer(
    { cert: certificate.cert, key: certificate.key, ALPNProtocols: ["h2", "holdfast-h2r"], minVersion: "TLSv1.3" },
    (socket) => {
      connections += 1;
      sockets.add(socket.on("close", () => sockets.delete(socket)).on("error", () => undefined));
      if (socket.alpnProtocol === "h2") {
        const session = performServerHandshake(socket);
        keep(outbound, session);
        session.on("stream", (stream, headers) =>
          gateway.onConnect(
            stream.on("error", () => undefined),
            headers,
          ),
        );
      } else {
        const session = connectHttp2("http://node", { createConnection: () => socket });
        keep(inbound, session);
        session.on("ping", () => (pings += 1));
      }
    },
  );
  server.on("tlsClientError", () => undefined);
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(place.port ?? 0, place.host ?? "127.0.0.1", resolve);
  });
  const stop = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy();
    http2.close();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
  onTestFinished(stop);
  const gateway: TestGateway = {
    port: (server.address() as AddressInfo).port,
    key: testIdentity("", certificate).key,
    certificate,
    inbound,
    outbound,
    get connections() {
      return connections;
    },
    pings: () => pings,
    onConnect(stream) {
      stream.respond({ ":status": 200 });
      stream.pipe(stream);
    },
    async open(headers) {
      const session = await waitFor("an inward session", () => inbound.at(-1));
      return session.request({ ":method": "CONNECT", ...headers }, { endStream: false }).on("error", () => undefined);
    },
    stop,
  };
  return gateway;
}

/** A node's identity from a certificate of the test. */
export function testIdentity(uid: string, { cert, key }: TestCertificate): MeshIdentity {
  const thumbprint = p256Thumbprint(createPublicKey(key));
  if (thumbprint === undefined) throw new Error("not a P-256 key");
  return { uid, key: thumbprint, context: meshContext(key, cert) };
}

function keep<S extends ClientHttp2Session | ServerHttp2Session>(list: S[], session: S): void {
  list.push(session);
  session.on("error", () => undefined);
  session.on("close", () => list.splice(list.indexOf(session), 1));
}
