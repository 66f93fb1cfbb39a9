import { X509Certificate } from "node:crypto";
import { createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { once } from "node:events";
import type { AddressInfo, Server } from "node:net";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { checkRepository } from "../../../../../src/agent/telemetry/conditions/repository-check.ts";
import { repositoryOf, resolvedHost } from "../../../../../src/agent/wiring/health.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import { hostDialler, keyHash } from "../../../../../src/host/net/dial.ts";
import type { ProxySettings } from "../../../../../src/lib/net/proxy.ts";
import { startConnectProxy } from "../../../../support/control-plane/connect-proxy.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const never = new AbortController().signal;

const check = (url: string, signal = never, proxies: ProxySettings = { noProxy: [] }, pins: readonly string[] = []) =>
  checkRepository({ url: new URL(url), pins, dialler: hostDialler(systemClock(), proxies) }, signal);

async function listening(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

test.each([
  [200, "ok"],
  [404, "ok"],
  [301, "ok"],
  [401, "client-unknown"],
  [403, "client-unknown"],
  [503, "unavailable"],
])("status %i is %s", async (status, answer) => {
  const port = await listening(createServer((_, response) => response.writeHead(status).end()));
  expect(await check(`http://127.0.0.1:${port}/`)).toBe(answer);
});

test("a closed port and an impossible name", async () => {
  const server = createServer();
  const port = await listening(server);
  server.close();
  await once(server, "close");
  expect(await check(`http://127.0.0.1:${port}/`)).toBe("port-not-reachable");
  // A label of 64 characters is invalid, so no query leaves the machine.
  const name = `${"x".repeat(64)}.invalid`;
  expect(await check(`http://${name}/`)).toBe("name-not-resolved");
});

/** A server with an untrusted certificate, and the hash of its key. */
async function unknownIssuer(): Promise<{ readonly port: number; readonly pin: string }> {
  const directory = tempDir();
  const [key, cert] = [join(directory, "key"), join(directory, "cert")];
  const options = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x"];
  execFileSync("openssl", [...options, "-keyout", key, "-out", cert], { stdio: "ignore" });
  const tls = { key: readFileSync(key), cert: readFileSync(cert) };
  const port = await listening(createTlsServer(tls, (_, response) => response.end()));
  const { publicKey } = new X509Certificate(tls.cert);
  return { port, pin: keyHash(publicKey.export({ type: "spki", format: "der" })) };
}

test("a certificate of an unknown issuer, and one whose key is pinned", async () => {
  const { port, pin } = await unknownIssuer();
  expect(await check(`https://127.0.0.1:${port}/`)).toBe("certificate-refused");
  expect(await check(`https://127.0.0.1:${port}/`, never, { noProxy: [] }, [pin])).toBe("ok");
});

test("behind a proxy, which resolves the name", async () => {
  const { port, pin } = await unknownIssuer();
  const proxy = await startConnectProxy(port);
  const proxies = { https: new URL(proxy.url), noProxy: [] };
  expect(await check("https://repository.invalid/", never, proxies, [pin])).toBe("ok");
  expect(proxy.requests).toEqual(["repository.invalid:443"]);
  proxy.refusal = "403 Forbidden";
  expect(await check("https://repository.invalid/", never, proxies, [pin])).toBe("port-not-reachable");
});

test("with a proxy the name servers are asked for the proxy's name", () => {
  const proxies = { https: new URL("http://proxy.example:3128"), noProxy: ["near.example"] };
  expect(resolvedHost("wss://cp.example/agent/v1/session", { proxies })).toBe("proxy.example");
  expect(resolvedHost("wss://near.example/agent/v1/session", { proxies })).toBe("near.example");
  const hosts = { "near.example": ["192.0.2.7"] };
  expect(resolvedHost("wss://Near.example/agent/v1/session", { proxies, hosts })).toBe("192.0.2.7");
  expect(resolvedHost("ws://localhost:8480/agent/v1/session", { proxies })).toBe("localhost");
});

test("the repository is the source of releases, unless that is a file", () => {
  expect(repositoryOf(undefined, "https://cp.example")).toBe("https://cp.example/releases/manifest.jws");
  expect(repositoryOf("https://repo.example/m.jws", "https://cp.example")).toBe("https://repo.example/m.jws");
  expect(repositoryOf("/srv/manifest.jws", "https://cp.example")).toBeUndefined();
});

test("an abort ends the wait", async () => {
  const server = createServer(() => {});
  const port = await listening(server);
  const stop = new AbortController();
  const answer = check(`http://127.0.0.1:${port}/`, stop.signal);
  await once(server, "request");
  stop.abort(new Error("stopped"));
  await expect(answer).rejects.toThrow("stopped");
});
