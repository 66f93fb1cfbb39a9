import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, getCACertificates, setDefaultCACertificates } from "node:tls";
import { beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostDialler, keyHash, type DialRequest } from "../../../../src/host/net/dial.ts";
import type { Resolve } from "../../../../src/host/net/system-resolve.ts";
import type { ProxySettings } from "../../../../src/lib/net/proxy.ts";
import { testCertificate, type TestCertificate } from "../../../support/certificates.ts";
import { waitFor } from "../../../support/wait-for.ts";
import { untilHolds } from "../../../support/until-holds.ts";

/** A name that is never sent to a resolver, since no DNS message can hold it. */
const UNRESOLVABLE = `${"a".repeat(64)}.invalid`;

let authority: TestCertificate;
let expired: TestCertificate;

beforeAll(async () => {
  authority = await testCertificate({ hosts: [], isAuthority: true });
  expired = await testCertificate({ hosts: ["other.example"], isExpired: true });
});

async function listen(server: Server, host = "127.0.0.1", port = 0): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined).once("close", () => sockets.delete(socket));
  });
  server.on("tlsClientError", () => undefined);
  server.listen(port, host);
  await once(server, "listening");
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

const echo = () => createServer((socket) => socket.pipe(socket));
const tlsEcho = ({ cert, key }: TestCertificate) => createTlsServer({ cert, key }, (socket) => socket.pipe(socket));

async function dial(
  request: Partial<DialRequest> & { port: number },
  proxies: ProxySettings = { noProxy: [] },
  signal?: AbortSignal,
  resolve?: Resolve,
) {
  const dialled = await hostDialler(systemClock(), proxies, resolve).dial(
    { host: "127.0.0.1", timeoutMs: 60_000, ...request },
    signal ?? new AbortController().signal,
  );
  onTestFinished(() => void dialled.socket.destroy());
  return dialled;
}

async function echoes(socket: Socket): Promise<string> {
  const answer = once(socket, "data") as Promise<[Buffer]>;
  socket.write("hello");
  return (await answer)[0].toString();
}

async function closedPort(): Promise<number> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

describe("a direct connection", () => {
  test.each(["127.0.0.1", "localhost"])("to %s reports which address answered", async (host) => {
    const dialled = await dial({ host, port: await listen(echo()) });
    expect(dialled).toMatchObject({ address: "127.0.0.1", tlsKey: undefined });
    expect(await echoes(dialled.socket)).toBe("hello");
  });

  test("works over IPv6", async () => {
    expect((await dial({ host: "::1", port: await listen(echo(), "::1") })).address).toBe("::1");
  });

  test("uses previously working addresses when the name cannot be resolved, past unreachable ones", async () => {
    const port = await listen(echo(), "127.0.0.2");
    const dialled = await dial({ host: UNRESOLVABLE, port, knownAddresses: ["127.0.0.1", "127.0.0.2"] });
    expect(dialled.address).toBe("127.0.0.2");
  });

  test("fails with every address it tried", async () => {
    const port = await closedPort();
    const failed = dial({ host: UNRESOLVABLE, port, knownAddresses: ["127.0.0.1", "127.0.0.2"] });
    await expect(failed).rejects.toMatchObject({ name: "SessionError", code: "connect-failed" });
    await expect(failed).rejects.toThrow(/127\.0\.0\.1, 127\.0\.0\.2.*ECONNREFUSED/);
  });

  test("fails by name when there is no address", async () => {
    await expect(dial({ host: UNRESOLVABLE, port: 1 })).rejects.toMatchObject({ code: "resolve-failed" });
  });

  test("stops at once when aborted", async () => {
    const port = await listen(echo());
    await expect(dial({ port }, { noProxy: [] }, AbortSignal.abort())).rejects.toMatchObject({
      code: "connect-failed",
    });
  });
});

describe("without TLS, to this machine only,", () => {
  const plain = { plainOnlyLoopback: true };

  test("an address of this machine is dialled", async () => {
    expect((await dial({ ...plain, port: await listen(echo()) })).address).toBe("127.0.0.1");
  });

  test("another one is not tried, and the others are", async () => {
    const port = await listen(echo());
    // A documentation address (RFC 5737): an attempt would end silently at the deadline.
    const dialled = await dial({ ...plain, host: UNRESOLVABLE, port, knownAddresses: ["192.0.2.1", "127.0.0.1"] });
    expect(dialled.address).toBe("127.0.0.1");
    const failed = dial({ ...plain, host: UNRESOLVABLE, port, knownAddresses: ["192.0.2.1"] });
    await expect(failed).rejects.toMatchObject({ code: "insecure" });
    await expect(failed).rejects.toThrow(/192\.0\.2\.1/);
  });

  test("a proxy is not used", async () => {
    const proxies = { http: new URL(`http://127.0.0.1:${await closedPort()}`), noProxy: [] };
    await expect(dial({ ...plain, host: "cp.example", port: 80 }, proxies)).rejects.toMatchObject({ code: "insecure" });
  });
});

describe("TLS", () => {
  test("accepts a pinned key with any name and dates in its certificate", async () => {
    const port = await listen(tlsEcho(expired));
    const dialled = await dial({ port, tls: { pins: ["x".repeat(43), expired.pin] } });
    expect(dialled).toMatchObject({ tlsKey: expired.pin, address: "127.0.0.1" });
    expect(await echoes(dialled.socket)).toBe("hello");
  });

  test("refuses a key that is neither pinned nor certified, and names its issuer", async () => {
    const port = await listen(tlsEcho(expired));
    const failed = dial({ port, tls: { pins: ["x".repeat(43)] } });
    await expect(failed).rejects.toMatchObject({ code: "tls-untrusted", details: { tlsKey: expired.pin } });
    await expect(failed).rejects.toThrow(/test server/);
  });

  test("to another protocol fails", async () => {
    const port = await listen(createServer((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")));
    await expect(dial({ port, tls: { pins: [] } })).rejects.toMatchObject({ code: "tls-failed" });
  });

  test("reset in the handshake fails", async () => {
    const port = await listen(createServer((socket) => socket.once("data", () => socket.resetAndDestroy())));
    await expect(dial({ port, tls: { pins: [] } })).rejects.toMatchObject({ code: "tls-failed" });
  });

  test("without an answer is given up at the deadline, and its socket closed", async () => {
    let closed = 0;
    const port = await listen(createServer((socket) => socket.resume().once("close", () => (closed += 1))));
    await expect(dial({ port, tls: { pins: [] }, timeoutMs: 100 })).rejects.toMatchObject({ code: "tls-failed" });
    await waitFor("the socket to close", () => closed === 1);
  });

  test.each<[string, () => Server]>([
    ["closes it", () => createServer((socket) => socket.destroy())],
    ["says nothing", () => createServer((socket) => socket.resume())],
    ["shows a key that is not trusted", () => tlsEcho(authority)],
  ])("with an address that accepts and %s is skipped for one that works", async (_what, make) => {
    const port = await listen(tlsEcho(expired), "127.0.0.2");
    await listen(make(), "127.0.0.1", port);
    const tls = { pins: [expired.pin] };
    const dialled = await dial({ host: UNRESOLVABLE, port, tls, knownAddresses: ["127.0.0.1", "127.0.0.2"] });
    expect(dialled).toMatchObject({ address: "127.0.0.2", tlsKey: expired.pin });
    expect(await echoes(dialled.socket)).toBe("hello");
  });

  test("that is refused reports it, in spite of other addresses", async () => {
    const port = await listen(tlsEcho(expired), "127.0.0.2");
    const failed = dial({ host: UNRESOLVABLE, port, tls: { pins: [] }, knownAddresses: ["127.0.0.1", "127.0.0.2"] });
    await expect(failed).rejects.toMatchObject({ code: "tls-untrusted" });
  });

  test("hashes the key as in RFC 7469", () => {
    expect(keyHash(new Uint8Array())).toBe("47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU");
  });
});

describe("TLS with a certificate of an authority", () => {
  test.each([
    ["the address", ["127.0.0.1"], "127.0.0.1", true],
    ["the name", ["localhost"], "localhost", true],
    ["another address", ["127.0.0.9"], "127.0.0.1", false],
    ["a name that was not asked for", ["localhost"], "127.0.0.1", false],
  ])("for %s", async (_what, hosts, host, isTrusted) => {
    const before = getCACertificates("default");
    setDefaultCACertificates([...before, authority.cert]);
    onTestFinished(() => setDefaultCACertificates(before));
    const port = await listen(tlsEcho(await testCertificate({ hosts, issuer: authority })));
    const outcome = await dial({ host, port, tls: { pins: [] } }).then(
      () => "trusted",
      (error: { code: string }) => error.code,
    );
    expect(outcome).toBe(isTrusted ? "trusted" : "tls-untrusted");
  });
});

describe("through a proxy", () => {
  /** A proxy that leads all tunnels to one port. */
  async function tunnel(target: number, host = "127.0.0.1", at = 0) {
    const requested: { url: string | undefined; authorization: string | undefined }[] = [];
    const server = createHttpServer();
    server.on("connect", (request, socket: Socket) => {
      requested.push({ url: request.url, authorization: request.headers["proxy-authorization"] });
      const onward = connect(target, "127.0.0.1", () => {
        socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
        socket.pipe(onward).pipe(socket);
      });
      onward.on("error", () => socket.destroy());
      socket.on("error", () => onward.destroy()).once("close", () => onward.destroy());
    });
    return { requested, port: await listen(server, host, at) };
  }
  const via = (port: number, credentials = "") => ({
    https: new URL(`http://${credentials}127.0.0.1:${port}`),
    noProxy: [],
  });
  const tls = () => ({ pins: [expired.pin] });

  test("a tunnel carries TLS, with the credentials of the proxy's URL, and survives the dial deadline", async () => {
    const { requested, port } = await tunnel(await listen(tlsEcho(expired)));
    const deadlines: AbortSignal[] = [];
    const timeout = AbortSignal.timeout.bind(AbortSignal);
    const spy = vi.spyOn(AbortSignal, "timeout").mockImplementation((ms) => {
      const deadline = timeout(ms);
      deadlines.push(deadline);
      return deadline;
    });
    onTestFinished(() => spy.mockRestore());
    const dialled = await dial(
      { host: "cp.example", port: 443, tls: tls(), timeoutMs: 2000 },
      via(port, "us%40er:p%3Aw@"),
    );
    expect(dialled).toMatchObject({ address: undefined, tlsKey: expired.pin });
    expect(requested).toEqual([
      { url: "cp.example:443", authorization: `Basic ${Buffer.from("us@er:p:w").toString("base64")}` },
    ]);
    expect(deadlines.length).toBeGreaterThan(0);
    await untilHolds(() => expect(deadlines.every(({ aborted }) => aborted)).toBe(true));
    expect(await echoes(dialled.socket)).toBe("hello");
  });

  test("an IPv6 address is put in brackets", async () => {
    const { requested, port } = await tunnel(await listen(tlsEcho(expired)));
    await dial({ host: "2001:db8::1", port: 443, tls: tls() }, via(port));
    expect(requested).toEqual([{ url: "[2001:db8::1]:443", authorization: undefined }]);
  });

  test.each([
    ["407", "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n", /407/],
    ["403 with a page", "HTTP/1.1 403 Forbidden\r\ncontent-length: 4\r\n\r\nnope", /403/],
    ["garbage", "\0\0garbage\r\n\r\n", /proxy/],
    ["nothing", "", /proxy/],
    ["bytes behind its 200", "HTTP/1.1 200 OK\r\n\r\nsmuggled", /200/],
  ])("that answers %s is refused", async (_what, text, why) => {
    const port = await listen(createServer((socket) => socket.once("data", () => socket.end(text))));
    const failed = dial({ host: "cp.example", port: 443, tls: tls() }, via(port));
    await expect(failed).rejects.toMatchObject({ code: "proxy-refused" });
    await expect(failed).rejects.toThrow(why);
  });

  /** A proxy whose name has two addresses: the second works, the first is made by `make`. */
  async function twoAddresses(make: (() => Server) | undefined) {
    const { requested, port } = await tunnel(await listen(tlsEcho(expired)), "127.0.0.2");
    if (make !== undefined) await listen(make(), "127.0.0.1", port);
    const proxies = { https: new URL(`http://proxy.example:${port}`), noProxy: [] };
    const resolve = (host: string) =>
      host === "proxy.example" ? Promise.resolve(["127.0.0.1", "127.0.0.2"]) : Promise.reject(new Error(host));
    return {
      requests: requested,
      dialled: dial({ host: "cp.example", port: 443, tls: tls() }, proxies, undefined, resolve),
    };
  }

  test.each<[string, (() => Server) | undefined]>([
    ["nobody listens", undefined],
    ["nobody answers", () => createServer((socket) => socket.resume())],
    ["the connection is closed", () => createServer((socket) => socket.destroy())],
    ["it is refused", () => createServer((socket) => socket.end("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n"))],
    [
      "the tunnel leads nowhere",
      () => createServer((socket) => socket.once("data", () => socket.write("HTTP/1.1 200 OK\r\n\r\n"))),
    ],
  ])("with another address uses that when at the first %s", async (_what, make) => {
    const { requests: requested, dialled } = await twoAddresses(make);
    expect(await echoes((await dialled).socket)).toBe("hello");
    expect(requested.map(({ url }) => url)).toEqual(["cp.example:443"]);
  });

  test("that fails at all its addresses reports the answer of the one that answered", async () => {
    const port = await listen(
      createServer((socket) => socket.end("HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n")),
      "127.0.0.2",
    );
    const proxies = { https: new URL(`http://proxy.example:${port}`), noProxy: [] };
    const resolve = () => Promise.resolve(["127.0.0.1", "127.0.0.2"]);
    const failed = dial({ host: "cp.example", port: 443, tls: tls() }, proxies, undefined, resolve);
    await expect(failed).rejects.toMatchObject({ code: "proxy-refused" });
    await expect(failed).rejects.toThrow(/proxy\.example.*407/);
  });

  test("with a name that cannot be resolved reports it", async () => {
    const proxies = { https: new URL("http://proxy.example:3128"), noProxy: [] };
    const resolve = () => Promise.reject(new Error("ENOTFOUND"));
    const failed = dial({ host: "cp.example", port: 443, tls: tls() }, proxies, undefined, resolve);
    await expect(failed).rejects.toMatchObject({ code: "resolve-failed" });
    await expect(failed).rejects.toThrow(/proxy\.example/);
  });

  test("that is unreachable, or silent, is refused", async () => {
    await expect(dial({ host: "cp.example", port: 443, tls: tls() }, via(await closedPort()))).rejects.toMatchObject({
      code: "proxy-refused",
    });
    const silent = await listen(createServer((socket) => socket.resume()));
    const failed = dial({ host: "cp.example", port: 443, tls: tls(), timeoutMs: 100 }, via(silent));
    await expect(failed).rejects.toMatchObject({ code: "proxy-refused" });
  });
});
