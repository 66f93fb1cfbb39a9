import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { z } from "zod";
import type { Controller } from "../../../../src/controller/controller.ts";
import { sha256Hex } from "../../../../src/controller/access/store.ts";
import { openSqliteStore } from "../../../../src/controller/store/sqlite.ts";
import { storeIn } from "../../../../src/controller/stores.ts";
import { readAgentToken } from "../../../../src/protocol/channel/activation.ts";
import { ACTIVATION_PATH, TOKEN_PATH } from "../../../../src/protocol/channel/envelope.ts";
import { peekClaims, signJws } from "../../../../src/protocol/channel/jws.ts";
import { ApiBench, ORIGIN } from "../../../support/control-plane/api-bench.ts";
import { makeIdentity, register, type TestIdentity } from "../../../support/control-plane/node-client.ts";
import { MovableClock, runController } from "../../../support/control-plane/running-controller.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const DEVICE = { vendor: "Test", model: "Box", mac: "02:00:00:00:00:01" };
const Members = z.record(z.string(), z.unknown());

function client(controller: Controller, key = readFileSync(controller.adminKeyPath, "utf8").trim()) {
  const send = async (method: string, path: string, json?: unknown, headers: Readonly<Record<string, string>> = {}) => {
    const response = await fetch(`${controller.url}${path}`, {
      method,
      headers: { ...headers, ...(json === undefined ? {} : { "content-type": "application/json" }) },
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
    });
    const body: unknown = await response.json();
    return { status: response.status, body: Array.isArray(body) ? { list: body } : Members.parse(body) };
  };
  return {
    api: (method: string, path: string, json?: unknown) => send(method, path, json, { authorization: key }),
    activation: async (identity: TestIdentity, seq: number) => {
      const claims = { aud: controller.url, seq, keys: identity.keys, device: DEVICE };
      return send("POST", ACTIVATION_PATH, {
        activation: await signJws("holdfast-activation+jwt", claims, identity.auth),
      });
    },
    exchange: async (identity: TestIdentity, token: string, change: object = {}) => {
      const { id = "", secret = "" } = readAgentToken(token) ?? {};
      const claims = { aud: controller.url, id, secret, keys: identity.keys, ...change };
      return send("POST", TOKEN_PATH, { exchange: await signJws("holdfast-token-use+jwt", claims, identity.auth) });
    },
  };
}

async function changes(controller: Controller): Promise<string> {
  const filter = { eventTypes: ["Configuration Change"], sort: { by: "timestamp", order: "asc" } } as const;
  const { items } = await controller.events.find({ ...filter, limit: 1000, offset: 0 });
  return items.map(({ message }) => message).join("\n");
}

test("an operator enters the code of a machine, and it registers under the name that was given", async () => {
  const controller = await runController();
  const { api, activation } = client(controller);
  const machine = await makeIdentity();
  const { code } = (await activation(machine, 1)).body;
  const typed = String(code)
    .toLowerCase()
    .replace(/^(...)/, "$1 ");
  const seen = await api("POST", "/v2/activation/lookup", { code: typed });
  expect(seen.body).toMatchObject({ device: DEVICE, key: machine.thumbprints.auth, address: "127.0.0.1" });
  const other = await api("POST", "/v2/activation", { code, name: "edge", key: "A".repeat(43) });
  expect(other).toMatchObject({ status: 422, body: { list: [expect.stringMatching(/^key: /)] } });
  const activated = await api("POST", "/v2/activation", { code, name: "edge", key: machine.thumbprints.auth });
  expect(activated).toMatchObject({ status: 200, body: { name: "edge", type: "Node" } });
  expect((await api("POST", "/v2/activation", { code, name: "edge-2" })).status).toBe(404);

  const { license } = (await activation(machine, 2)).body;
  const thief = await register(controller.url, String(license), await makeIdentity());
  expect([thief.status, thief.body["code"]]).toEqual([401, "bad-signature"]);
  expect((await register(controller.url, String(license), machine)).status).toBe(200);
  expect((await controller.nodes.byFqdn("edge.holdfast.example"))?.uid).toBe(activated.body["uid"]);
  expect(await changes(controller)).toContain(
    `Activation code accepted: Test Box (02:00:00:00:00:01) at 127.0.0.1, key ${machine.thumbprints.auth}`,
  );
});

test("wrong codes are limited by user and address, with the time to wait", async () => {
  const controller = await runController();
  const { api } = client(controller);
  for (let at = 0; at < 10; at += 1) {
    expect((await api("POST", "/v2/activation/lookup", { code: "AAAAAA" })).status).toBe(404);
  }
  const refused = await api("POST", "/v2/activation", { code: "AAAAAA", name: "edge" });
  expect(refused).toMatchObject({ status: 429, body: { code: "too-many-failures" } });
});

test("a right to one node, and the right to see or manage nodes, activates none", async () => {
  const dataDir = tempDir();
  await (await runController({ dataDir })).close();
  const grants: readonly (readonly [string, string])[] = [
    ["nodes::remote-activation", "tgrn:tg::nodes:node/0f0e0d0c-0b0a-4908-8706-050403020100"],
    ["nodes::manage", "*"],
    ["nodes::read", "*"],
  ];
  const store = storeIn(openSqliteStore(join(dataDir, "controller.db")));
  for (const [at, [action, resource]] of grants.entries()) {
    const statements = [{ effect: "allow" as const, actions: [action] }];
    await store.access.putApiKey(`key-${at}`, sha256Hex(`key-${at}`), [
      { name: "test", statements, resources: [resource] },
    ]);
  }
  await store.close();
  const controller = await runController({ dataDir });
  const { code } = (await client(controller).activation(await makeIdentity(), 1)).body;
  for (const at of grants.keys()) {
    const { api } = client(controller, `key-${at}`);
    expect((await api("POST", "/v2/activation/lookup", { code })).status).toBe(403);
    expect((await api("POST", "/v2/activation", { code, name: "edge" })).status).toBe(403);
  }
  const { api } = client(controller, "key-2");
  expect((await api("GET", "/v2/agent-token")).status).toBe(403);
  expect((await api("POST", "/v2/agent-token", { name: "laptop" })).status).toBe(403);
  expect((await api("DELETE", "/v2/agent-token/0f0e0d0c-0b0a-4908-8706-050403020100")).status).toBe(403);
});

test("an agent token registers as many agents as it says, each key once, and its secret is nowhere", async () => {
  const dataDir = tempDir();
  const controller = await runController({ dataDir });
  const { api, exchange } = client(controller);
  const made = await api("POST", "/v2/agent-token", { namePrefix: "lab", maxUses: 2 });
  expect(made.status).toBe(200);
  const token = String(made.body["token"]);
  const [one, two, three] = await Promise.all([makeIdentity(), makeIdentity(), makeIdentity()]);
  const first = await exchange(one, token);
  // A lost answer takes no second use.
  expect((await exchange(one, token)).body).toEqual(first.body);
  const second = await exchange(two, token);
  expect(await exchange(three, token)).toMatchObject({ status: 410, body: { code: "token-used" } });
  for (const [identity, { body }] of [[one, first] as const, [two, second] as const]) {
    const license = String(body["license"]);
    expect(peekClaims("holdfast-license+jwt", license).name).toMatch(/^lab-[0-9a-f]{10}$/);
    expect((await register(controller.url, license, three)).status).toBe(401);
    expect((await register(controller.url, license, identity)).status).toBe(200);
  }
  expect((await controller.nodes.all()).map(({ type }) => type)).toEqual(["Agent", "Agent"]);
  const [listed] = (await api("GET", "/v2/agent-token")).body["list"] as Record<string, unknown>[];
  expect(listed).toMatchObject({ namePrefix: "lab", maxUses: 2, uses: 2, created_by: "admin" });
  const secret = readAgentToken(token)?.secret ?? "";
  expect(JSON.stringify(listed)).not.toContain(secret);
  expect(await changes(controller)).toContain("Agent token created for 2 agents lab-*");
  await controller.close();
  for (const file of ["controller.db", "controller.db-wal"]) {
    const bytes = (() => {
      try {
        return readFileSync(join(dataDir, file));
      } catch {
        return Buffer.alloc(0);
      }
    })();
    expect(bytes.includes(secret)).toBe(false);
  }
});

test("a token that is withdrawn, expired or guessed gives nothing", async () => {
  const clock = new MovableClock();
  const controller = await runController({ clock });
  const { api, exchange } = client(controller);
  const token = async (): Promise<{ id: string; text: string }> => {
    const { body } = await api("POST", "/v2/agent-token", { namePrefix: "lab", maxUses: 5, expiresInSeconds: 3600 });
    return { id: String(body["id"]), text: String(body["token"]) };
  };
  const machine = await makeIdentity();
  const withdrawn = await token();
  expect((await api("DELETE", `/v2/agent-token/${withdrawn.id}`)).status).toBe(200);
  expect((await api("DELETE", `/v2/agent-token/${withdrawn.id}`)).status).toBe(404);
  expect((await exchange(machine, withdrawn.text)).status).toBe(401);
  expect(await changes(controller)).toContain(`Agent token ${withdrawn.id} revoked`);

  const valid = await token();
  expect((await exchange(machine, valid.text, { secret: "A".repeat(43) })).status).toBe(401);
  expect((await exchange(machine, valid.text, { aud: "https://other.example" })).status).toBe(401);
  clock.advance(3_601_000);
  expect(await exchange(machine, valid.text)).toMatchObject({ status: 410, body: { code: "token-expired" } });
});

test("a token does no more than its maker still may", async () => {
  const bench = await ApiBench.create();
  const key = await bench.keyFor(["nodes::manage"]);
  const { json } = await bench.call("POST", "/v2/agent-token", { key, json: { name: "laptop" } });
  const { id, secret } = readAgentToken(String(Members.parse(json)["token"])) ?? { id: "", secret: "" };
  const use = async () => {
    const { keys, auth } = await makeIdentity();
    return bench.agentTokens.exchange(await signJws("holdfast-token-use+jwt", { aud: ORIGIN, id, secret, keys }, auth));
  };
  await bench.access.putApiKey(key, sha256Hex(key), []);
  await expect(use()).rejects.toMatchObject({ code: "bad-signature" });
  const statements = [{ effect: "allow" as const, actions: ["nodes::manage"] }];
  await bench.access.putApiKey(key, sha256Hex(key), [{ name: "test", statements, resources: ["*"] }]);
  expect(await use()).toHaveProperty("license");
});

test("a use of a token counts once its license is issued, and one left by an ended controller gets its license", async () => {
  const bench = await ApiBench.create();
  const order = { namePrefix: "lab", maxUses: 1 };
  const { json } = await bench.call("POST", "/v2/agent-token", { json: order });
  const { id, secret } = readAgentToken(String(Members.parse(json)["token"])) ?? { id: "", secret: "" };
  const { keys, auth, thumbprints } = await makeIdentity();
  const use = async () =>
    bench.agentTokens.exchange(await signJws("holdfast-token-use+jwt", { aud: ORIGIN, id, secret, keys }, auth));
  const name = `lab-${sha256Hex(`${id} ${thumbprints.auth}`).slice(0, 10)}`;
  await bench.call("POST", "/cluster", { json: { name } });
  await expect(use()).rejects.toMatchObject({ code: "name-taken" });
  expect(await bench.agentTokens.all()).toMatchObject([{ uses: 0 }]);
  await bench.call("DELETE", `/cluster/${name}.example.net`);
  await bench.fleet.store.query(
    `INSERT INTO agent_token_uses VALUES ('${id}', '${thumbprints.auth}', '${name}', NULL)`,
  );
  const { license } = await use();
  expect(await use()).toEqual({ license });
  expect(await bench.agentTokens.all()).toMatchObject([{ uses: 1 }]);
});
