import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { REGISTER_PATH } from "../../../src/protocol/channel/envelope.ts";
import { makeIdentity, registerJws } from "../../support/control-plane/node-client.ts";
import { fileEnd } from "../../support/file-end.ts";
import {
  freePort,
  registerNode,
  startAgent,
  startController,
  type AgentProgram,
  type ControllerProgram,
} from "../../support/machine/programs.ts";
import { TESTS_ALL } from "../../support/sample.ts";
import { startStage, untilAnotherSession, untilOnline, untilReason, wake } from "../../support/stage.ts";
import { startStranger } from "../../support/control-plane/stranger.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";
import { startWsRelay, type WsRelay } from "../../support/control-plane/ws-relay.ts";

const MIB = 1024 * 1024;

/** One node behind a relay, for the tests that do not stop their controller. */
let relay: WsRelay;
let controller: ControllerProgram;
let agent: AgentProgram;
let uid: string;
const onFinished = fileEnd();
let port: number;

beforeAll(async () => {
  const dir = tempDir(onFinished);
  port = await freePort();
  relay = await startWsRelay(await freePort(), port, onFinished);
  controller = await startController(dir, port, ["--url", `http://127.0.0.1:${relay.port}`], { onFinished });
  agent = await startAgent(join(dir, "node"), { onFinished });
  uid = await registerNode(controller, agent, "node");
  await untilOnline(agent);
});

test("a message over the limit closes the socket with 1009, is reported, and the node reconnects", async () => {
  const large = (bytes: number): string => {
    const head = '{"jsonrpc":"2.0","method":"document.changed","params":{"name":"node","version":1,"x":"';
    return `${head}${"x".repeat(bytes - head.length - 3)}"}}`;
  };

  const first = relay.sessions.at(-1);
  first?.toNode(large(MIB));
  const ping = await controller.call("POST", `/node/${uid}/trigger/tg-ping?wait=1`, { host: "127.0.0.1", count: 1 });
  expect(ping.status).toBe(200);
  first?.toNode(large(MIB + 1));
  await waitFor("the node closes", () => first?.closed.node === 1009);
  const output = (): readonly string[] => agent.log().match(/"code":"too-large","reason":"[^"]*/g) ?? [];
  await waitFor("the node reports why", () => output().length === 1);
  expect(output()[0]).toMatch(/payload|larger/i);
  wake(agent);
  await untilOnline(agent);

  const second = relay.sessions.at(-1);
  expect(second).not.toBe(first);
  second?.toController(large(MIB + 1));
  await waitFor("the controller closes", () => second?.closed.controller === 1009);
  await waitFor("the node reports why", () => output().length === 2);
  wake(agent);
  await untilOnline(agent);
});

test("a controller that stops reading costs the agent no memory, and is connected again", async () => {
  const dir = tempDir();
  const flood = join(dir, "flood");
  writeFileSync(flood, `#!/bin/sh\nexec yes "${"64 bytes from everywhere ".repeat(8)}"\n`);
  chmodSync(flood, 0o755);
  const script = `mount --bind ${flood} "$(command -v ping)" && exec "$0" "$@"`;
  const stage = await startStage(dir, { agent: { within: ["unshare", "-rm", "sh", "-c", script] } });
  const { agent, controller, uid, proxy } = stage;
  const before = (await agent.status()).process.rssBytes;

  expect((await controller.call("POST", `/node/${uid}/trigger/tg-ping`, { host: "127.0.0.1" })).status).toBe(200);
  await waitFor("the flood runs", () => proxy.bytesFromNodes > MIB);
  controller.process.kill("SIGSTOP");
  let most = 0;
  const end = performance.now() + (TESTS_ALL ? 45_000 : 4000);
  let { session } = await agent.status();
  while (performance.now() < end) {
    const status = await agent.status();
    most = Math.max(most, status.process.rssBytes);
    session = status.session;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  expect(most - before).toBeLessThan(48 * MIB);
  if (TESTS_ALL) expect(session.state).not.toBe("online");
  controller.process.kill("SIGCONT");

  await untilOnline(agent);
  await waitFor("the flood is over", async () => {
    const status = await agent.status();
    return status.process.children === 0 && status.session.state === "online";
  });
  expect(
    (await controller.call("POST", `/node/${uid}/trigger/tg-nc?wait=1`, { host: "127.0.0.1", port: 1 })).status,
  ).toBe(200);
  expect((await agent.status()).process.rssBytes - before).toBeLessThan(48 * MIB);
});

test("limits the silent sockets of one address, without an effect on others", async () => {
  const strangers = await Promise.all(Array.from({ length: 40 }, () => startStranger(port, "127.0.0.2")));
  const heads = strangers.map(({ head }) => head);
  expect(heads.filter((head) => head.startsWith("HTTP/1.1 101"))).toHaveLength(16);
  const refused = heads.filter((head) => head.startsWith("HTTP/1.1 429"));
  expect(refused).toHaveLength(24);
  expect(refused.every((head) => /retry-after: \d+/i.test(head))).toBe(true);

  await untilAnotherSession(agent, () => relay.sessions.at(-1)?.cut());
  const silent = strangers.filter(({ head }) => head.startsWith("HTTP/1.1 101"));
  await waitFor("those who say nothing are let go", () => silent.every(({ socket }) => socket.closed));
  expect((await startStranger(port, "127.0.0.2")).head).toContain("101");
});

if (TESTS_ALL) {
  test("silent sockets from everywhere exclude nodes for moments only", async () => {
    const { agent, proxy, port } = await startStage(tempDir());
    const addresses = Array.from({ length: 80 }, (_, i) => `127.0.8.${i + 1}`);
    const crowd = await Promise.all(
      addresses.flatMap((address) => Array.from({ length: 16 }, () => startStranger(port, address))),
    );
    const heads = crowd.map(({ head }) => head);
    expect(heads.filter((head) => head.startsWith("HTTP/1.1 101"))).toHaveLength(1024);
    expect(heads.filter((head) => head.startsWith("HTTP/1.1 503"))).toHaveLength(256);
    proxy.reset();
    const { session: lost } = await untilReason(agent, ["connection-lost", "upgrade-refused"]);
    if (lost.reason?.code === "connection-lost") wake(agent);
    const { session } = await untilReason(agent, ["upgrade-refused"]);
    expect(session.reason?.message).toContain("503");
    await untilOnline(agent);
  });
}

test("names the mistake in a registration, which changes nothing", async () => {
  const origin = `http://127.0.0.1:${relay.port}`;
  const license = await controller.license("late");
  const other = await controller.license("other");
  const identity = await makeIdentity();
  const jws = (change: Record<string, unknown> = {}, of = license): Promise<string> =>
    registerJws(origin, of, identity, change);
  const good = await jws();
  const [header = "", , signature = ""] = good.split(".");
  const encoded = (claims: unknown): string => Buffer.from(JSON.stringify(claims)).toString("base64url");
  const { auth, overlay, wireguard } = identity.keys;
  const stranger = await makeIdentity();

  const cases: readonly { readonly body: string; readonly status: number; readonly names: RegExp }[] = [
    { body: "", status: 401, names: /./ },
    { body: "null", status: 401, names: /object/ },
    { body: "[]", status: 401, names: /object/ },
    { body: '{"register":', status: 401, names: /JSON/i },
    { body: "{}", status: 401, names: /register/ },
    { body: '{"register":7}', status: 401, names: /register/ },
    { body: '{"register":"a.b"}', status: 401, names: /register/ },
    { body: '{"register":"a.b.c"}', status: 401, names: /register/ },
    { body: `{"__proto__":{},"register":"${good}"}`, status: 401, names: /__proto__/ },
    { body: `{"register":${"[".repeat(40)}${"]".repeat(40)}}`, status: 401, names: /deep|depth|level/i },
    { body: JSON.stringify({ register: `${header}.${encoded({})}.${signature}` }), status: 401, names: /aud|keys/ },
    { body: JSON.stringify({ register: good.replace(/.{8}$/, "AAAAAAAA") }), status: 401, names: /signature/ },
    { body: JSON.stringify({ register: await jws({ aud: "http://else.example" }) }), status: 401, names: /aud/ },
    { body: JSON.stringify({ register: await jws({ nonce: "short" }) }), status: 401, names: /nonce/ },
    { body: JSON.stringify({ register: await jws({ keys: { auth, overlay } }) }), status: 401, names: /wireguard/ },
    {
      body: JSON.stringify({ register: await jws({ keys: { auth: stranger.keys.auth, overlay, wireguard } }) }),
      status: 401,
      names: /signature|key/,
    },
    { body: JSON.stringify({ register: await jws({ device: { vendor: 7 } }) }), status: 401, names: /device/ },
    { body: JSON.stringify({ register: await jws({ license: "a.b.c" }) }), status: 401, names: /license|header/ },
    { body: JSON.stringify({ register: await jws({ license: good }) }), status: 401, names: /typ|license/ },
    { body: "x".repeat(33 * 1024), status: 413, names: /32768 bytes/ },
  ];
  for (const { body, status, names } of cases) {
    const response = await fetch(`${controller.url}${REGISTER_PATH}`, { method: "POST", body });
    const text = await response.text();
    const what = `${body.slice(0, 60)} got ${text}`;
    expect(response.status, what).toBe(status);
    expect(JSON.parse(text), what).toMatchObject({ error: expect.stringMatching(names) as string });
  }
  const chunked = new Blob(["x".repeat(64 * 1024)]).stream();
  const streamed = await fetch(`${controller.url}${REGISTER_PATH}`, { method: "POST", body: chunked, duplex: "half" });
  expect(streamed.status).toBe(413);

  const names = async () =>
    ((await controller.call("GET", "/node")).body as { name: string }[]).map(({ name }) => name);
  expect(await names()).toEqual(["node"]);
  const post = (register: string): Promise<Response> =>
    fetch(`${controller.url}${REGISTER_PATH}`, { method: "POST", body: JSON.stringify({ register }) });
  expect((await post(good)).status).toBe(200);
  expect((await post(await jws())).status, "the same keys again").toBe(200);
  expect((await post(await jws({}, other))).status, "keys of another node").toBe(409);
  expect((await post(await registerJws(origin, license, stranger))).status, "a used license").toBe(409);
  expect((await names()).sort()).toEqual(["late", "node"]);
});
