import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { connect as tlsConnect, createSecureContext, type ConnectionOptions, type TLSSocket } from "node:tls";
import { duplexPair } from "node:stream";
import { describe, expect, it, onTestFinished } from "vitest";
import {
  acceptTls,
  dialTls,
  peerKey,
  whenProved,
  type MeshIdentity,
} from "../../../../../src/overlay/mesh/transport/tls.ts";
import { meshIdentity, foreignCertificate } from "../../../../support/overlay/mesh-identity.ts";

const gateway = await meshIdentity();
const edge = await meshIdentity();

/** A listener that authenticates every connection; `outcomes` are keys and protocols, or codes. */
async function listener(identity: MeshIdentity) {
  const outcomes: string[] = [];
  const sockets: TLSSocket[] = [];
  const server = createServer({ pauseOnConnect: true }, (raw: Socket) => {
    const socket = acceptTls(raw, identity, ["h2", "holdfast-h2r"]);
    sockets.push(socket);
    whenProved(socket).then(
      ({ key, protocol }) => outcomes.push(`${key} ${protocol}`),
      (error: { code: string }) => outcomes.push(error.code),
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { port, outcomes, sockets };
}

const next = (outcomes: string[]) => expect.poll(() => outcomes.shift(), { interval: 5 });

describe("mutual TLS between nodes", () => {
  it("authenticates both keys and agrees on the purpose", async () => {
    const { port, outcomes } = await listener(gateway);
    const socket = dialTls(connect(port, "127.0.0.1"), edge, "holdfast-h2r");
    onTestFinished(() => void socket.destroy());
    expect(await whenProved(socket)).toEqual({ key: gateway.key, protocol: "holdfast-h2r" });
    expect(peerKey(socket)).toBe(gateway.key);
    await next(outcomes).toBe(`${edge.key} holdfast-h2r`);
  });

  it("works over any stream", async () => {
    const [near, far] = duplexPair();
    const [accepted, dialled] = [acceptTls(far, gateway, ["holdfast-peer"]), dialTls(near, edge, "holdfast-peer")];
    const [here, there] = await Promise.all([whenProved(accepted), whenProved(dialled)]);
    expect([here.key, there.key]).toEqual([edge.key, gateway.key]);
    accepted.end("through");
    const [chunk] = (await once(dialled, "data")) as [Buffer];
    expect(chunk.toString()).toBe("through");
    dialled.destroy();
  });

  const dialled = (port: number, options: ConnectionOptions): void => {
    const socket = tlsConnect({ host: "127.0.0.1", port, rejectUnauthorized: false, ...options });
    socket.on("error", () => undefined);
    onTestFinished(() => void socket.destroy());
  };

  it.each<[string, ConnectionOptions, string]>([
    ["has no certificate", { ALPNProtocols: ["h2"] }, "unknown-key"],
    ["speaks TLS 1.2 alone", { ALPNProtocols: ["h2"], maxVersion: "TLSv1.2" }, "tls"],
    ["names no protocol", { secureContext: edge.context }, "alpn"],
    ["names another protocol", { secureContext: edge.context, ALPNProtocols: ["http/1.1"] }, "alpn"],
  ])("refuses a peer that %s", async (_, options, code) => {
    const { port, outcomes, sockets } = await listener(gateway);
    dialled(port, options);
    await next(outcomes).toBe(code);
    expect(sockets[0]?.destroyed).toBe(true);
  });

  it("refuses a connection that is not TLS, and one that closes early", async () => {
    const { port, outcomes } = await listener(gateway);
    const talker = connect(port, "127.0.0.1").on("error", () => undefined);
    talker.write("GET / HTTP/1.1\r\n\r\n");
    await next(outcomes).toBe("tls");
    const leaver = connect(port, "127.0.0.1");
    await once(leaver, "connect");
    leaver.destroy();
    await next(outcomes).toBe("tls");
  });

  it("resumes nothing: an offered session needs a full handshake", async () => {
    const { port, outcomes, sockets } = await listener(gateway);
    const first = tlsConnect({
      port,
      host: "127.0.0.1",
      ALPNProtocols: ["h2"],
      secureContext: edge.context,
      rejectUnauthorized: false,
    });
    first.on("error", () => undefined).resume();
    onTestFinished(() => void first.destroy());
    await next(outcomes).toBe(`${edge.key} h2`);
    sockets[0]?.write("x");
    const session = first.getSession();
    expect(session).toBeInstanceOf(Buffer);
    dialled(port, { ALPNProtocols: ["h2"], ...(session === undefined ? {} : { session }) });
    // It offers the session of a client with a certificate, and has none itself.
    await next(outcomes).toBe("unknown-key");
  });

  it.each(["RSA", "P-384"] as const)("has no thumbprint for keys of another kind: %s", async (kind) => {
    const { port, outcomes } = await listener(gateway);
    const { cert, key } = await foreignCertificate(kind);
    dialled(port, { secureContext: createSecureContext({ cert, key }), ALPNProtocols: ["h2"] });
    await next(outcomes).toBe("unknown-key");
  });

  it("stops on its signal", async () => {
    const [near] = duplexPair();
    const abort = new AbortController();
    const socket = dialTls(near, edge, "h2");
    const proof = whenProved(socket, abort.signal);
    abort.abort(new Error("enough"));
    await expect(proof).rejects.toThrow("enough");
    expect(socket.destroyed).toBe(true);
  });
});
