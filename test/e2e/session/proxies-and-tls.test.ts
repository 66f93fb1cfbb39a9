import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:https";
import { connect as tlsConnect } from "node:tls";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { WebSocketServer } from "ws";
import { startConnectProxy } from "../../support/control-plane/connect-proxy.ts";
import { privateNames } from "../../support/network/private-machine.ts";
import { freePort, startAgent, startController, registerNode } from "../../support/machine/programs.ts";
import { startStage, untilOnline, untilReason, wake } from "../../support/stage.ts";
import { tempDir } from "../../support/temp-dir.ts";

const NAME = "cp.holdfast.test";

test("HTTPS_PROXY carries everything, NO_PROXY bypasses it, and a wrong proxy is named", async () => {
  const dir = tempDir();
  const names = privateNames(dir);
  const port = await freePort();
  const controller = await startController(dir, port, ["--tls", "--url", `https://${NAME}:${port}`]);
  const proxy = await startConnectProxy(port);
  const within = (HTTPS_PROXY: string, NO_PROXY = "") => ({
    within: names.within,
    env: { ...process.env, HTTPS_PROXY, NO_PROXY },
  });

  // Only the proxy resolves the name.
  const agent = await startAgent(join(dir, "node"), within(proxy.url));
  const uid = await registerNode(controller, agent, "node");
  expect((await agent.status()).session.address).toBeUndefined();
  expect(new Set(proxy.requests)).toEqual(new Set([`${NAME}:${port}`]));
  const ping = await controller.call("POST", `/node/${uid}/trigger/tg-ping?wait=1`, { host: "127.0.0.1", count: 1 });
  expect(ping.status).toBe(200);

  proxy.refusal = "407 Proxy Authentication Required";
  await agent.end();
  const refused = await startAgent(join(dir, "node"), within(proxy.url));
  expect((await untilReason(refused, ["proxy-refused"])).session.reason?.message).toContain("407");
  proxy.refusal = undefined;
  await untilOnline(refused);
  await refused.end();

  const nowhere = `127.0.0.1:${await freePort()}`;
  const lost = await startAgent(join(dir, "node"), within(`http://${nowhere}`));
  expect((await untilReason(lost, ["proxy-refused"])).session.reason?.message).toContain(nowhere);
  await lost.end();

  names.setHosts([`127.0.0.1 ${NAME}`]);
  const direct = await startAgent(join(dir, "node"), within(`http://${nowhere}`, `other.test,.holdfast.test`));
  expect((await untilOnline(direct)).session.address).toBe("127.0.0.1");
});

interface Certificate {
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly path: string;
}

/** A certificate for 127.0.0.1, with a key of its own. */
function foreignCertificate(dir: string): Certificate {
  const [path, keyPath] = [join(dir, "foreign.pem"), join(dir, "foreign.key")];
  const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"];
  const names = ["-subj", "/CN=interceptor", "-addext", "subjectAltName=IP:127.0.0.1"];
  execFileSync("openssl", ["req", "-x509", ...curve, ...names, "-keyout", keyPath, "-out", path], { stdio: "ignore" });
  return { cert: readFileSync(path), key: readFileSync(keyPath), path };
}

/** Terminates TLS with the foreign key and opens another session to the controller, as an inspecting firewall does. */
async function intercept(port: number, target: number, { cert, key }: Certificate): Promise<Server> {
  const server = createServer({ cert, key });
  server.on("upgrade", (request, client, head) => {
    const onward = tlsConnect({ host: "127.0.0.1", port: target, rejectUnauthorized: false });
    const headers = Object.entries(request.headers).map(([name, value]) => `${name}: ${String(value)}`);
    onward.write([`GET ${request.url} HTTP/1.1`, ...headers, "", ""].join("\r\n"));
    onward.write(head);
    onward.on("error", () => client.destroy()).on("close", () => client.destroy());
    client.on("error", () => onward.destroy()).on("close", () => onward.destroy());
    onward.pipe(client).pipe(onward);
  });
  await listening(server, port);
  return server;
}

/** A server with the foreign key that imitates the controller. */
async function impersonate(port: number, { cert, key }: Certificate): Promise<Server> {
  const server = createServer({ cert, key });
  const sockets = new WebSocketServer({ server, handleProtocols: () => "holdfast.v1" });
  sockets.on("connection", (socket) => {
    const nonce = Buffer.alloc(32).toString("base64url");
    socket.send(JSON.stringify({ jsonrpc: "2.0", method: "session.challenge", params: { nonce, protocol: 1 } }));
    socket.on("message", () => socket.close(4003, "deleted"));
  });
  await listening(server, port);
  return server;
}

async function listening(server: Server, port: number): Promise<void> {
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  onTestFinished(() => void stop(server));
}

function stop(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}

test("detects a foreign TLS key whoever signed it, obeys nothing, and recovers", async () => {
  const dir = tempDir();
  const foreign = foreignCertificate(dir);
  const { agent, proxy, port } = await startStage(dir, { isTls: true });
  await proxy.set({ kind: "refuse" });
  const middle = await intercept(proxy.port, port, foreign);
  wake(agent);
  const { session } = await untilReason(agent, ["tls-untrusted"]);
  expect(session.reason?.message).toContain("interceptor");

  // A machine that trusts the interceptor's certificate, as in many offices, still sees another key.
  await agent.end();
  const trusting = { env: { ...process.env, NODE_EXTRA_CA_CERTS: foreign.path } };
  const again = await startAgent(join(dir, "node"), trusting);
  await untilReason(again, ["tls-intercepted"]);
  await stop(middle);

  const pretender = await impersonate(proxy.port, foreign);
  wake(again);
  const { session: deceived } = await untilReason(again, ["not-authentic"]);
  expect((deceived.retryAt ?? 0) - deceived.since).toBeLessThanOrEqual(120_000);
  await stop(pretender);

  await proxy.set({ kind: "pass" });
  wake(again);
  await untilOnline(again);
});
