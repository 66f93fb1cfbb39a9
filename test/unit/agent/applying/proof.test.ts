import { once } from "node:events";
import { createServer as createHttpsServer } from "node:https";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, getCACertificates, setDefaultCACertificates } from "node:tls";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { proof, reasonOf, type ProofOptions } from "../../../../src/agent/applying/proof.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostDialler } from "../../../../src/host/net/dial.ts";
import { P256PublicKey, thumbprint } from "../../../../src/protocol/values/keys.ts";
import type { NetworkTargets } from "../../../../src/protocol/overlay/network-targets.ts";
import { testCertificate, type TestCertificate } from "../../../support/certificates.ts";

let authority: TestCertificate;
let signed: TestCertificate;
let own: TestCertificate;

beforeAll(async () => {
  authority = await testCertificate({ hosts: [], isAuthority: true });
  [signed, own] = await Promise.all([
    testCertificate({ hosts: ["127.0.0.1"], issuer: authority }),
    testCertificate({ hosts: ["portal.example"] }),
  ]);
});

async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined).once("close", () => sockets.delete(socket));
  });
  server.on("tlsClientError", () => undefined);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

const answering = ({ cert, key }: TestCertificate, status: number) =>
  listen(createHttpsServer({ cert, key }, (_request, response) => response.writeHead(status).end()));
const gatewayAt = ({ cert, key }: TestCertificate) =>
  listen(createTlsServer({ cert, key, minVersion: "TLSv1.3", ALPNProtocols: ["holdfast-h2r"] }));

async function thumbprintOf({ parsed }: TestCertificate): Promise<string> {
  const key = await crypto.subtle.importKey(
    "spki",
    parsed.publicKey.rawData,
    { name: "ECDSA", namedCurve: "P-256" },
    true,
    ["verify"],
  );
  return thumbprint(P256PublicKey.parse(await crypto.subtle.exportKey("jwk", key)));
}

const nobody: NetworkTargets = { schema: 1, paths: [] };
const PATH = { gateway: "gw-1", id: "default", isDefault: true, name: "gw.example", host: "127.0.0.1" };

function proofOf(targets: Partial<NetworkTargets>, options: Partial<ProofOptions> = {}) {
  return proof({
    dialler: hostDialler(systemClock(), { noProxy: [] }),
    resolve: (host) => Promise.resolve([host]),
    targets: () => ({ ...nobody, ...targets }),
    knownAddresses: () => [],
    hasSession: () => true,
    gatewaysUp: () => [],
    ...options,
  });
}

const controlPlane = (port: number, pins: readonly string[] = [], scheme = "wss", host = "127.0.0.1") => ({
  controlPlane: { url: "https://cp.example", session: `${scheme}://${host}:${port}`, pins: [...pins] },
});
const within = (ms: number) => AbortSignal.timeout(ms);

test.each([
  ["12", 12_000],
  ["0", 0],
  ["-1", undefined],
  ["1e9", undefined],
  ["99999999999", undefined],
  [undefined, undefined],
])("a control plane that reports an uptime of %s", async (output, ms) => {
  const { cert, key } = own;
  const headers = output === undefined ? {} : { "Holdfast-Uptime": output };
  const port = await listen(createHttpsServer({ cert, key }, (_, response) => response.writeHead(426, headers).end()));
  expect(await proofOf(controlPlane(port, [own.pin])).servingMs(within(10_000))).toBe(ms);
  const pins = ["47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"];
  expect(await proofOf(controlPlane(port, pins)).servingMs(within(10_000))).toBeUndefined();
});

describe("the control plane is reached", () => {
  test.each([200, 302, 404, 426, 503])("by a pinned key and the status %i", async (status) => {
    const port = await answering(own, status);
    expect(await proofOf(controlPlane(port, [own.pin])).controlPlane(within(10_000))).toBeUndefined();
  });

  test("by a valid chain without a pin", async () => {
    const before = getCACertificates("default");
    setDefaultCACertificates([...before, authority.cert]);
    onTestFinished(() => setDefaultCACertificates(before));
    const port = await answering(signed, 404);
    expect(await proofOf(controlPlane(port)).controlPlane(within(10_000))).toBeUndefined();
  });

  test("without TLS on this machine only", async () => {
    const server = createServer((socket) => void socket.end("HTTP/1.1 426 Upgrade Required\r\n\r\n"));
    const port = await listen(server);
    expect(await proofOf(controlPlane(port, [], "ws")).controlPlane(within(10_000))).toBeUndefined();
    const elsewhere = proofOf(controlPlane(port, [], "ws", "192.0.2.1"));
    expect((await elsewhere.controlPlane(within(10_000)))?.message).toContain("no TLS");
  });
});

describe("the control plane is not reached", () => {
  test("by a captive portal with a certificate of its own, or by another key", async () => {
    const port = await answering(own, 200);
    for (const pins of [[], [signed.pin]]) {
      const unreached = await proofOf(controlPlane(port, pins)).controlPlane(within(10_000));
      expect(unreached?.target).toBe(`control plane 127.0.0.1:${port}`);
      expect(unreached?.message).not.toBe("");
    }
  });

  test("by a bare TCP connection, silent or not", async () => {
    const silent = await listen(createServer());
    const talking = await listen(createServer((socket) => void socket.end("HTTP/1.1 200 OK\r\n\r\n")));
    expect((await proofOf(controlPlane(silent, [own.pin])).attempt(NONE, within(4000)))[0]?.message).toBe(
      "connection timed out",
    );
    expect(await proofOf(controlPlane(talking, [own.pin])).attempt(NONE, within(10_000))).toHaveLength(1);
  });

  test("by TLS without a response, or with one that is not HTTP", async () => {
    const { cert, key } = own;
    const mute = await listen(createTlsServer({ cert, key }));
    const other = await listen(
      createTlsServer({ cert, key }, (socket) => void socket.end("220 mail.example ESMTP\r\n")),
    );
    expect(await proofOf(controlPlane(mute, [own.pin])).attempt(NONE, within(700))).toHaveLength(1);
    expect(await proofOf(controlPlane(other, [own.pin])).attempt(NONE, within(10_000))).toHaveLength(1);
  });

  test("when nothing listens; nor by a node that is not registered", async () => {
    const server = createServer();
    const port = await listen(server);
    server.close();
    await once(server, "close");
    const refused = proofOf(controlPlane(port, [own.pin]));
    expect((await refused.controlPlane(within(10_000)))?.message).toBe("connection refused");
    expect((await proofOf({}).controlPlane(within(10_000)))?.message).toContain("not registered");
  });

  const NONE = { session: true, gateways: [] };
});

describe("of the gateways that were reached before the change", () => {
  const UP = { session: true, gateways: ["gw-1", "gw-2"] };
  const nowhere = { ...PATH, gateway: "gw-2", name: "other.example", port: 1 };

  test("one is enough, by its key", async () => {
    const [cp, gw] = await Promise.all([answering(own, 200), gatewayAt(signed)]);
    const there = { ...PATH, port: gw, key: await thumbprintOf(signed) };
    const key = await thumbprintOf(own);
    const paths = [{ ...nowhere, key }, there];
    expect(await proofOf({ ...controlPlane(cp, [own.pin]), paths }).attempt(UP, within(10_000))).toEqual([]);
    const stranger = proofOf({ ...controlPlane(cp, [own.pin]), paths: [{ ...there, key }] });
    const [unreached, ...others] = await stranger.attempt(UP, within(10_000));
    expect(unreached).toMatchObject({ target: `gateway gw.example 127.0.0.1:${gw}`, isGateway: true });
    expect([unreached?.message, others]).toEqual(["it shows another key than the gateway's", []]);
  });

  test("it skips those without a document or with another key", async () => {
    const cp = await answering(own, 200);
    const paths = [
      { ...PATH, port: 1 },
      { ...nowhere, gateway: "gw-3" },
    ];
    expect(await proofOf({ ...controlPlane(cp, [own.pin]), paths }).attempt(UP, within(10_000))).toEqual([]);
  });

  test("does not wait for a name server that never answers", async () => {
    const cp = await answering(own, 200);
    const paths = [{ ...PATH, host: "gw.example", port: 1, key: await thumbprintOf(own) }];
    const hanging = { resolve: () => new Promise<readonly string[]>(() => undefined) };
    const one = proofOf({ ...controlPlane(cp, [own.pin]), paths }, hanging);
    expect((await one.attempt(UP, within(4000)))[0]).toMatchObject({
      isGateway: true,
      message: "connection timed out",
    });
  });
});

test("records each gateway that was up once, within the limit of the store", () => {
  const many = Array.from({ length: 100 }, (_, index) => `gw-${index}`);
  const before = proofOf({}, { hasSession: () => false, gatewaysUp: () => ["gw-0", ...many] }).baseline();
  expect([before.session, before.gateways.length, new Set(before.gateways).size]).toEqual([false, 64, 64]);
});

test("the reason is that of the innermost error with a message", () => {
  const inner = Object.assign(new Error("connect"), { code: "ENETUNREACH" });
  expect(reasonOf(new Error("outer", { cause: new AggregateError([inner]) }))).toBe("network is unreachable");
  expect(reasonOf(new Error("as it is"))).toBe("as it is");
});
