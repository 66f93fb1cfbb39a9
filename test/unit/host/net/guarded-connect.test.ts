import { once } from "node:events";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, getCACertificates, setDefaultCACertificates } from "node:tls";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../../src/host/clock.ts";
import {
  guardedConnector,
  type GuardedConnectorOptions,
  type GuardedTarget,
} from "../../../../src/host/net/guarded-connect.ts";
import { testCertificate, type TestCertificate } from "../../../support/certificates.ts";
import { startConnectProxy } from "../../../support/control-plane/connect-proxy.ts";

let authority: TestCertificate;

beforeAll(async () => {
  authority = await testCertificate({ hosts: [], isAuthority: true });
});

async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
  });
  server.on("tlsClientError", () => undefined).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** A server that counts connections, and echoes lines. */
async function echo() {
  let count = 0;
  const port = await listen(
    createServer((socket) => {
      count += 1;
      socket.pipe(socket);
    }),
  );
  return { port, count: () => count };
}

const SIGNAL = new AbortController().signal;

async function connect(
  target: Pick<GuardedTarget, "host" | "port"> & Partial<GuardedTarget>,
  options: Partial<GuardedConnectorOptions> = {},
) {
  const connector = guardedConnector({
    clock: systemClock(),
    policy: { allow: ["127.0.0.0/8"] },
    proxies: { noProxy: [] },
    connectMs: 5000,
    ...options,
  });
  const guarded = await connector.connect({ isTls: false, ...target }, SIGNAL);
  onTestFinished(() => void guarded.connection.destroy());
  return guarded;
}

async function echoes({ connection }: { connection: Socket }): Promise<string> {
  const answer = once(connection, "data") as Promise<[Buffer]>;
  connection.write("hello");
  return (await answer)[0].toString();
}

const NOWHERE = { policy: { allow: [] } };

test("connects to an allowed address", async () => {
  const { port } = await echo();
  expect(await echoes(await connect({ host: "127.0.0.1", port }))).toBe("hello");
});

test.each([
  "127.0.0.1",
  "[::ffff:127.0.0.1]",
  "[::ffff:7f00:1]",
  "localhost",
  "localhost.",
  "LOCALHOST",
  "127.1",
  "0x7f.1",
  "2130706433",
  "017700000001",
])("does not connect to this machine as %s", async (host) => {
  const { port, count } = await echo();
  // It connects to the URL's form of the host; not every resolver supports a name with a final dot.
  const { hostname } = new URL(`http://${host}/`);
  const code = expect.stringMatching(
    hostname.endsWith(".") ? /^(?:forbidden-address|resolve-failed)$/ : /^forbidden-address$/,
  ) as string;
  await expect(connect({ host: hostname, port }, NOWHERE)).rejects.toMatchObject({ code });
  expect(count()).toBe(0);
});

test("checks a name by each of its current addresses, and connects only to that address", async () => {
  const { port, count } = await echo();
  const answers = [["127.0.0.1"], ["127.0.0.2"], ["169.254.7.1"]];
  const requested: string[] = [];
  const options = {
    policy: { allow: ["127.0.0.1/32"] },
    resolve: (host: string) => {
      requested.push(host);
      return Promise.resolve(answers.shift() ?? []);
    },
  };
  const connector = guardedConnector({ clock: systemClock(), proxies: { noProxy: [] }, connectMs: 5000, ...options });
  const target = { host: "twice.example", port, isTls: false };
  const { connection } = await connector.connect(target, SIGNAL);
  onTestFinished(() => void connection.destroy());
  expect(connection.remoteAddress).toBe("127.0.0.1");
  for (const refusal of ["loopback", "link-local"]) {
    await expect(connector.connect(target, SIGNAL)).rejects.toMatchObject({
      code: "forbidden-address",
      details: { refusal },
    });
  }
  expect(requested.length).toBe(3);
  expect(count()).toBe(1);
});

test("tries only the allowed ones of several addresses", async () => {
  const { port, count } = await echo();
  const resolve = () => Promise.resolve(["169.254.169.254", "127.0.0.1", "::1"]);
  const { connection } = await connect({ host: "mixed.example", port }, { resolve });
  expect(connection.remoteAddress).toBe("127.0.0.1");
  expect(count()).toBe(1);
});

test("refuses an own address unless allowed", async () => {
  const { port } = await echo();
  const ownAddresses = () => ["9.9.9.9"];
  const resolve = () => Promise.resolve(["9.9.9.9"]);
  await expect(connect({ host: "me.example", port }, { ownAddresses, resolve })).rejects.toMatchObject({
    code: "forbidden-address",
    message: expect.stringMatching(/me\.example is 9\.9\.9\.9, which is an address of this machine/) as string,
  });
});

test("distinguishes a name without an address from a port without a listener", async () => {
  const { port } = await echo();
  const resolve = () => Promise.reject(new Error("no such name"));
  await expect(connect({ host: "none.example", port }, { resolve })).rejects.toMatchObject({ code: "resolve-failed" });
  const closed = await listen(createServer());
  const gone = await new Promise<number>((done) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => done(port));
    });
  });
  expect(closed).not.toBe(gone);
  await expect(connect({ host: "127.0.0.1", port: gone })).rejects.toMatchObject({ code: "connect-failed" });
});

test("gives up a server that accepts and never speaks TLS in time", async () => {
  const port = await listen(createServer());
  await expect(connect({ host: "127.0.0.1", port, isTls: true }, { connectMs: 100 })).rejects.toMatchObject({
    code: "connect-failed",
  });
});

test("TLS needs a trusted authority, and the right name", async () => {
  const certificate = await testCertificate({ hosts: ["files.example"], issuer: authority });
  const { cert, key } = certificate;
  const port = await listen(createTlsServer({ cert, key }, (socket) => socket.pipe(socket)));
  const resolve = () => Promise.resolve(["127.0.0.1"]);
  const dial = (host: string) => connect({ host, port, isTls: true }, { resolve });
  await expect(dial("files.example")).rejects.toMatchObject({ code: "tls-untrusted" });
  const before = getCACertificates("default");
  onTestFinished(() => setDefaultCACertificates(before));
  setDefaultCACertificates([...before, authority.cert]);
  expect(await echoes(await dial("files.example"))).toBe("hello");
  await expect(dial("other.example")).rejects.toMatchObject({ code: "tls-untrusted" });
  await expect(connect({ host: "127.0.0.1", port, isTls: true })).rejects.toMatchObject({ code: "tls-untrusted" });
});

test("checks the target also through a proxy, which is exempt itself", async () => {
  const { port } = await echo();
  const proxy = await startConnectProxy(port);
  const proxies = { noProxy: [], http: new URL(proxy.url), https: new URL(proxy.url) };
  const dial = (host: string, addresses: readonly string[] | undefined) =>
    connect(
      { host, port: 80, isTunnelled: true },
      {
        policy: { allow: [], proxyNames: ["inner.example:80"] },
        proxies,
        resolve: () => (addresses === undefined ? Promise.reject(new Error("unknown")) : Promise.resolve(addresses)),
      },
    );
  expect(await echoes(await dial("files.example", ["8.8.8.8"]))).toBe("hello");
  // A name known only to the proxy is resolved there if local policy allows it.
  expect(await echoes(await dial("inner.example", undefined))).toBe("hello");
  await expect(dial("metadata.example", undefined)).rejects.toMatchObject({
    code: "resolve-failed",
    message: expect.stringContaining("list it in dataStore.proxyNames") as string,
  });
  await expect(dial("inner.example", ["127.0.0.1"])).rejects.toMatchObject({ code: "forbidden-address" });
  expect(proxy.requests).toEqual(["files.example:80", "inner.example:80"]);
  await expect(dial("evil.example", ["8.8.8.8", "169.254.169.254"])).rejects.toMatchObject({
    code: "forbidden-address",
  });
  await expect(dial("169.254.169.254", undefined)).rejects.toMatchObject({ code: "forbidden-address" });
  expect(proxy.requests.length).toBe(2);
  proxy.refusal = "403 Forbidden";
  await expect(dial("files.example", ["8.8.8.8"])).rejects.toMatchObject({ code: "proxy-refused" });
});

test("sends plain requests to the proxy itself, with their target", async () => {
  const { port } = await echo();
  const proxies = { noProxy: [], http: new URL(`http://127.0.0.1:${port}`) };
  const guarded = await connect(
    { host: "files.example", port: 80 },
    { ...NOWHERE, proxies, resolve: () => Promise.resolve(["8.8.8.8"]) },
  );
  expect(guarded.proxy?.port).toBe(String(port));
  expect(await echoes(guarded)).toBe("hello");
});

test("a stream fails when the peer sends before the request", async () => {
  const port = await listen(createServer((socket) => socket.write("220 welcome\r\n")));
  const connector = guardedConnector({
    clock: systemClock(),
    policy: { allow: ["127.0.0.0/8"] },
    proxies: { noProxy: [] },
    connectMs: 5000,
  });
  const { connection } = await connector.stream({ host: "127.0.0.1", port, isTls: false }, 4096, SIGNAL);
  connection.resume();
  expect(await connection.ended).toMatchObject({
    message: expect.stringContaining("sent data before a request") as string,
  });
});
