import { createServer } from "node:http";
import { expect, onTestFinished, test } from "vitest";
import { checkControlPlane, portalFinding } from "../../../../src/cli/netcheck/control-plane.ts";
import { startConnectProxy } from "../../../support/control-plane/connect-proxy.ts";
import { freePort } from "../../../support/machine/programs.ts";
import { byCheck, someTools, startHttps, startTcp } from "./rig.ts";

const none = { noProxy: [] };
const url = (port: number): URL => new URL(`https://cp.test:${port}`);

test("a control plane with the pinned key passes everything", async () => {
  const { port, certificate } = await startHttps((_, response) => response.writeHead(404).end());
  const target = { url: url(port), pins: [certificate.pin], proxies: none };
  const findings = await checkControlPlane(target, someTools());
  expect(findings.map(({ check }) => check)).toEqual([
    "dns",
    "proxy",
    "tcp",
    "tls",
    "http",
    "clock",
    "captive-portal",
    "mtu",
  ]);
  expect(byCheck(findings)).toMatchObject({
    dns: { status: "pass", message: "cp.test is 127.0.0.1" },
    proxy: { status: "skip", message: "none is set" },
    tcp: { status: "pass" },
    tls: { status: "pass", message: "its key is the pinned one" },
    http: { status: "pass", message: "it answers with status 404" },
    clock: { status: "pass", message: "within two seconds of the control plane" },
    "captive-portal": { status: "pass" },
    mtu: { status: "pass" },
  });
});

test("another key, without a chain of trust, is an interception", async () => {
  const { port } = await startHttps((_, response) => response.end());
  const found = byCheck(await checkControlPlane({ url: url(port), pins: [], proxies: none }, someTools()));
  expect(found["tls"]).toMatchObject({ status: "fail", fix: `exempt cp.test:${port} from TLS inspection` });
  expect(found["tls"]?.message).toContain("not trusted");
  expect([found["http"]?.status, found["clock"]?.status]).toEqual(["skip", "skip"]);
});

test.each([
  [-3_600_000, "fail", "60 min ahead of the control plane"],
  [3_600_000, "fail", "60 min behind the control plane"],
  [-30_000, "pass", "30 s ahead of the control plane"],
])("a control plane %i ms away: %s", async (offset, status, message) => {
  const now = Date.UTC(2026, 0, 1);
  const { port, certificate } = await startHttps((_, response) => {
    response.setHeader("date", new Date(now + offset).toUTCString()).end();
  });
  const tools = someTools();
  const target = { url: url(port), pins: [certificate.pin], proxies: none };
  const found = byCheck(await checkControlPlane(target, { ...tools, clock: { ...tools.clock, now: () => now } }));
  expect(found["clock"]).toMatchObject({ status, message });
});

test("no date skips the clock check, and no HTTP fails that check", async () => {
  const timeless = await startHttps((_, response) => {
    response.sendDate = false;
    response.end();
  });
  const target = { url: url(timeless.port), pins: [timeless.certificate.pin], proxies: none };
  expect(byCheck(await checkControlPlane(target, someTools()))["clock"]?.status).toBe("skip");
  const mute = await startHttps((request) => request.socket.destroy());
  const broken = { url: url(mute.port), pins: [mute.certificate.pin], proxies: none };
  expect(byCheck(await checkControlPlane(broken, someTools()))).toMatchObject({
    tls: { status: "pass" },
    http: { status: "fail" },
    clock: { status: "skip" },
  });
});

test("a closed port and a silent one fail", async () => {
  const port = await freePort();
  const refused = byCheck(await checkControlPlane({ url: url(port), pins: [], proxies: none }, someTools()));
  expect(refused["tcp"]).toMatchObject({ status: "fail", fix: expect.stringContaining("HTTPS_PROXY") as string });
  expect([refused["tls"]?.status, refused["http"]?.status, refused["mtu"]?.status]).toEqual(["skip", "skip", "skip"]);
  const silent = await startTcp(() => undefined);
  const hung = byCheck(
    await checkControlPlane({ url: url(silent), pins: [], proxies: none }, someTools({ timeoutMs: 300 })),
  );
  expect(hung["tcp"]?.status).toBe("pass");
  expect(hung["tls"]?.status).not.toBe("pass");
});

test("an unknown name fails", async () => {
  const target = { url: new URL("https://cp.invalid"), pins: [], proxies: none };
  expect(byCheck(await checkControlPlane(target, someTools()))).toMatchObject({
    dns: { status: "fail", message: "cp.invalid: no such name" },
    tcp: { status: "skip" },
    tls: { status: "skip" },
    mtu: { status: "skip" },
  });
});

test("through a proxy the node's own route does not count", async () => {
  const { port, certificate } = await startHttps((_, response) => response.end());
  const proxy = await startConnectProxy(port);
  const proxies = { https: new URL(proxy.url), noProxy: [] };
  const target = { url: url(port), pins: [certificate.pin], proxies };
  const through = byCheck(await checkControlPlane(target, someTools()));
  expect(through).toMatchObject({
    dns: { status: "skip" },
    tcp: { status: "skip" },
    proxy: { status: "pass", message: `${proxies.https.host} leads to cp.test:${port}` },
    tls: { status: "pass" },
    http: { status: "pass" },
    mtu: { status: "skip" },
  });
  expect(proxy.requests).toContain(`cp.test:${port}`);
  proxy.refusal = "407 Proxy Authentication Required";
  const refused = byCheck(await checkControlPlane(target, someTools()));
  expect(refused["proxy"]).toMatchObject({ status: "fail", message: `proxy ${proxies.https.host}: answered 407` });
  const bypassed = { ...target, proxies: { ...proxies, noProxy: ["cp.test"] } };
  expect(byCheck(await checkControlPlane(bypassed, someTools()))).toMatchObject({
    proxy: { status: "skip", message: `${proxies.https.host} is not for cp.test` },
    tcp: { status: "pass" },
  });
});

test("a proxy is reachable although its target is not trusted", async () => {
  const { port } = await startHttps((_, response) => response.end());
  const proxy = await startConnectProxy(port);
  const target = { url: url(port), pins: [], proxies: { https: new URL(proxy.url), noProxy: [] } };
  expect(byCheck(await checkControlPlane(target, someTools()))).toMatchObject({
    proxy: { status: "pass" },
    tls: { status: "fail" },
  });
});

test("a control plane on this machine needs no TLS", async () => {
  const server = createServer((_, response) => response.end());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const address = server.address();
  const port = typeof address === "object" ? address?.port : undefined;
  const target = { url: new URL(`http://127.0.0.1:${port}`), pins: [], proxies: none };
  expect(byCheck(await checkControlPlane(target, someTools()))).toMatchObject({
    dns: { status: "pass", message: "127.0.0.1 is an address" },
    tcp: { status: "pass" },
    tls: { status: "skip", message: "the control plane is on this machine, without TLS" },
    http: { status: "pass" },
    "captive-portal": { status: "skip" },
  });
  const elsewhere = { ...target, url: new URL("http://cp.invalid:8480") };
  expect(byCheck(await checkControlPlane(elsewhere, someTools()))["tls"]?.status).not.toBe("pass");
});

test.each([
  [{ status: 302, location: "http://portal.example.net/login" }, "fail", "plain HTTP is sent on to portal.example.net"],
  [
    { status: 302, location: "https://cp.test/x" },
    "pass",
    "plain HTTP is answered with status 302 and not sent elsewhere",
  ],
  [{ status: 301, location: "/there" }, "pass", "plain HTTP is answered with status 301 and not sent elsewhere"],
  [{ status: 200, location: undefined }, "pass", "plain HTTP is answered with status 200 and not sent elsewhere"],
  [{ status: 302, location: "http://[" }, "pass", "plain HTTP is answered with status 302 and not sent elsewhere"],
  [{ status: 511, location: undefined }, "fail", "the network wants a login (RFC 6585 §6)"],
])("plain HTTP that answers %j: %s", (head, status, message) => {
  expect(portalFinding(new URL("https://cp.test"), head)).toMatchObject({ status, message });
});
