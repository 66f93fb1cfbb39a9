import { beforeAll, expect, test } from "vitest";
import { fileEnd } from "../../support/file-end.ts";
import { Bulk } from "../../support/terminal/bulk-terminal.ts";
import { startTerminalStage, type TerminalStage } from "../../support/terminal/terminal-stage.ts";
import { TESTS_ALL } from "../../support/sample.ts";
import { untilStill } from "../../support/until-still.ts";
import { waitFor } from "../../support/wait-for.ts";

/** One node for the tests that neither stop nor delete theirs. */
let stage: TerminalStage;
const onFinished = fileEnd();

beforeAll(async () => {
  stage = await startTerminalStage(onFinished);
});

test("a terminal passes keys, size and exit code; both ends are audited", async () => {
  const client = await stage.open("container=shell&cols=100&rows=30").opened();
  client.type("echo $((40 + 2))-there; stty size\n");
  await client.seen("42-there");
  await client.seen("30 100");
  client.say({ type: "resize", cols: 132, rows: 50 });
  client.say({ type: "resize", cols: 133, rows: 51 });
  await waitFor("the new size", () => {
    client.type("stty size\n");
    return client.text.includes("51 133");
  });
  client.type("exit 7\n");
  expect(await client.end()).toEqual({ code: 1000, reason: "" });
  expect(client.reported).toEqual([{ type: "exit", code: 7 }]);
  const audits = async (): Promise<readonly string[]> => {
    const { items } = await stage.controller.events.audits({ limit: 10, offset: 0 });
    return items.map(({ value }) => value).toReversed();
  };
  await waitFor("the audit of the end", async () => (await audits()).length === 2);
  expect(await audits()).toEqual([
    "admin opened a terminal in container shell",
    "admin closed a terminal in container shell: exit code 7",
  ]);
});

test("limits terminals to eight; a caller that disconnects ends its program and releases its slot", async () => {
  const before = stage.compute.terminals.length;
  const opened = () => stage.compute.terminals.slice(before);
  const clients = [];
  for (let i = 0; i < 8; i += 1) clients.push(await stage.open().opened());
  const ninth = await stage.open().refusal();
  expect([ninth.status, JSON.parse(ninth.body)]).toEqual([
    422,
    [expect.stringContaining("8 streams are open on this node")],
  ]);
  expect(opened().length).toBe(8);
  clients[0]?.socket.terminate();
  await waitFor("its program to be gone", () => opened()[0]?.pid === undefined);
  await waitFor("room", async () => {
    const next = stage.open();
    return next.opened().then(
      () => true,
      () => false,
    );
  });
  expect(opened()[1]?.pid).toBeGreaterThan(0);
});

const BULK = (TESTS_ALL ? 100 : 32) * 1024 * 1024;

test("much output to a caller who does not read waits at its source, and arrives completely once read", async () => {
  const source = new Bulk(BULK);
  stage.compute.made.set("bulk", () => source);
  const client = stage.open("container=bulk");
  await client.opened();
  client.socket.pause();
  expect(await untilStill("the source stands still", () => source.given)).toBeLessThan(BULK / 3);
  client.socket.resume();
  expect(await client.end()).toMatchObject({ code: 1000 });
  expect(client.bytes).toBe(BULK);
});

test("much input to a program that does not read waits at its sender, and arrives completely once read", async () => {
  const sink = new Bulk(0);
  stage.compute.made.set("bulk", () => sink);
  const client = await stage.open("container=bulk").opened();
  sink.hold();
  const piece = Buffer.alloc(64 * 1024);
  for (let sent = 0; sent < BULK; sent += piece.length) client.socket.send(piece);
  const held = await untilStill("the sender stands still", () => client.socket.bufferedAmount);
  expect(held).toBeGreaterThan((BULK * 2) / 3);
  sink.release();
  await waitFor("everything to arrive", () => sink.taken === BULK);
});

test("refuses before the upgrade, with a status for each reason", async () => {
  const stage = await startTerminalStage();
  const { controller, key } = stage;
  const refusal = async (query: string, by = key) => {
    const { status, body } = await stage.open(query, by).refusal();
    return [status, JSON.parse(body) as unknown];
  };
  expect(await refusal("container=none")).toMatchObject([
    404,
    { code: "not-found", error: "there is no container none" },
  ]);
  expect(await refusal("container=shell", "wrong")).toMatchObject([401, { code: "unauthorized" }]);
  for (const query of [
    "",
    "container=",
    "container=shell&cols=0",
    "container=shell&rows=many",
    "container=shell&cols=1001",
  ]) {
    expect((await refusal(query))[0]).toBe(422);
  }
  const call = (path: string, init: RequestInit = {}) =>
    fetch(`${controller.url}${path}`, { ...init, headers: { authorization: key, "content-type": "application/json" } });
  expect((await call(stage.path())).status).toBe(426);

  // A user with read permission only.
  const policy = { name: "look", resources: ["*"], statements: [{ effect: "allow", actions: ["nodes::read"] }] };
  await call("/v2/policy", { method: "POST", body: JSON.stringify(policy) });
  await call("/v2/service-user", { method: "POST", body: JSON.stringify({ name: "eve", policies: ["look"] }) });
  const credential = (await (await call("/v2/service-user/eve/token", { method: "POST" })).json()) as Record<
    string,
    string
  >;
  const token = await fetch(`${controller.url}/oauth/token`, {
    method: "POST",
    headers: { "content-type": "application/x-www-form-urlencoded" },
    body: new URLSearchParams({
      grant_type: "client_credentials",
      client_id: credential["clientId"] ?? "",
      client_secret: credential["clientSecret"] ?? "",
    }),
  });
  const { access_token: bearer = "" } = (await token.json()) as { access_token?: string };
  expect(bearer).not.toBe("");
  expect(await refusal("container=shell", `Bearer ${bearer}`)).toMatchObject([403, { code: "forbidden" }]);

  // A forged ticket opens nothing.
  const response = await fetch(`${controller.url}/agent/v1/stream`);
  expect(response.status).toBe(426);

  const plain = await call(`/node/${stage.uid}/trigger/container-exec?wait=1`, { method: "POST", body: "{}" });
  expect([plain.status, await plain.json()]).toEqual([422, [expect.stringContaining("container-exec is a terminal")]]);
  expect(stage.compute.terminals).toEqual([]);

  await stage.agent.close();
  await waitFor("the node to be offline", async () => (await controller.nodes.get(stage.uid))?.isOnline === false);
  expect(await refusal("container=shell")).toMatchObject([503, { code: "offline" }]);
});

test("the end of a session ends its terminals, and their callers get the reason", async () => {
  const stage = await startTerminalStage();
  const client = await stage.open().opened();
  client.type("echo $((1 + 1))up\n");
  await client.seen("2up");
  await stage.controller.nodes.delete(stage.uid, "test");
  expect(await client.end()).toMatchObject({ code: 1011, reason: "offline" });
  expect(client.reported).toMatchObject([{ type: "error", code: "offline" }]);
  await waitFor("the program to be gone", () => stage.compute.terminals[0]?.pid === undefined);
});

test("a stop of the agent or the controller ends open terminals", async () => {
  const stage = await startTerminalStage();
  const [first, second] = [await stage.open().opened(), await stage.open().opened()];
  first.socket.send("not a command");
  expect((await first.end()).code).toBe(1008);
  await waitFor("its program to be gone", () => stage.compute.terminals[0]?.pid === undefined);
  await stage.agent.close();
  expect(stage.compute.terminals.every(({ pid }) => pid === undefined)).toBe(true);
  expect((await second.end()).code).toBe(1011);
  expect(second.reported).toMatchObject([{ type: "error" }]);
});
