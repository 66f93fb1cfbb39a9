import { beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { ADMIN_KEY, ApiBench, items, members } from "../../../support/control-plane/api-bench.ts";
import { ORG } from "../../../support/control-plane/fleet-stage.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const reader = {
  name: "reader",
  description: "reads nodes",
  statements: [{ effect: "allow", actions: ["nodes::read"] }],
  resources: ["*"],
};
const Credential = z.object({ clientId: z.string(), clientSecret: z.string(), secret: z.string() });

let bench: ApiBench;

beforeEach(async () => {
  bench = await ApiBench.create();
});

const created_at = expect.any(Number) as number;
/** Policies that are not built in. */
const own = async () =>
  items((await bench.call("GET", "/v2/policy")).json).filter(({ name }) => !String(name).startsWith("builtin-"));

describe("policies", () => {
  it("are created, shown, replaced and deleted", async () => {
    const created = await bench.call("POST", "/v2/policy", { json: reader });
    expect([created.status, created.json]).toEqual([200, { ...reader, created_at }]);
    expect(await own()).toEqual([created.json]);
    expect((await bench.call("GET", "/v2/policy/reader")).json).toEqual(created.json);
    const { name: _, ...change } = { ...reader, resources: ["tgrn:tg::nodes:node/*"] };
    const replaced = await bench.call("PUT", "/v2/policy/reader", { json: { ...change, created_at: 7 } });
    expect(replaced.json).toEqual({ ...change, name: "reader", created_at: members(created.json)["created_at"] });
    expect((await bench.call("GET", "/v2/policy/reader")).json).toEqual(replaced.json);
    expect((await bench.call("DELETE", "/v2/policy/reader")).json).toEqual({});
    for (const method of ["GET", "DELETE"]) expect((await bench.call(method, "/v2/policy/reader")).status).toBe(404);
    expect((await bench.call("PUT", "/v2/policy/reader", { json: reader })).status).toBe(404);
  });

  it("come back letter for letter", async () => {
    const json = {
      ...reader,
      description: "",
      statements: [
        { actions: ["node::read", "nodes::read", "domains::configure:threshold"], effect: "noop" },
        { actions: ["user::read"], effect: "deny" },
      ],
      resources: ["tgrn:tg::nodes:node/b", "*", "tgrn:tg::nodes:cluster/A"],
      conditions: {
        all: { eq: { "tg:node:tags:b": ["z", "a"], "tg:node:tags:a": [] }, ne: null },
        any: { eq: null, ne: null },
        none: {},
      },
    };
    expect((await bench.call("POST", "/v2/policy", { json })).json).toEqual({ ...json, created_at });
    expect((await bench.call("GET", "/v2/policy/reader")).json).toEqual({ ...json, created_at });
    const changed = { ...json, conditions: null };
    await bench.call("PUT", "/v2/policy/reader", { json: changed });
    expect((await bench.call("GET", "/v2/policy/reader")).json).toEqual({ ...changed, created_at });
  });

  it("that are built in are shown, and not changed", async () => {
    const path = "/v2/policy/builtin-tg-monitor";
    const listed = items((await bench.call("GET", "/v2/policy")).json).map(({ name }) => name);
    expect(listed).toContain("builtin-tg-monitor");
    expect(listed).toEqual(listed.toSorted((a, b) => (String(a) < String(b) ? -1 : 1)));
    const before = (await bench.call("GET", path)).json;
    for (const method of ["PUT", "DELETE"]) {
      const { name: _, ...json } = reader;
      const answer = await bench.call(method, path, { json });
      expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(/^name: .* is built in/)]]);
    }
    expect((await bench.call("GET", path)).json).toEqual(before);
    for (const name of ["builtin-mine", "restricted-mine"]) {
      const answer = await bench.call("POST", "/v2/policy", { json: { ...reader, name } });
      expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(/^name: must not begin with /)]]);
    }
  });

  it("are refused with the path of what is wrong", async () => {
    const wrong = async (change: object) => {
      const answer = await bench.call("POST", "/v2/policy", { json: { ...reader, ...change } });
      expect(answer.status).toBe(422);
      return answer.json;
    };
    expect(await wrong({ statements: [{ effect: "allow", actions: ["nodes::fly"] }] })).toEqual([
      expect.stringMatching(/^statements\.0\.actions\.0: is not a permission of this API/),
    ]);
    expect(await wrong({ statements: [{ effect: "allow", actions: ["nodes::*"] }] })).toEqual([
      expect.stringMatching(/^statements\.0\.actions\.0: .*wildcards are not allowed/),
    ]);
    expect(await wrong({ conditions: { all: { eq: { "tg:node:name": ["a"] } } } })).toEqual([
      expect.stringMatching(/^conditions\.all\.eq.*tg:node:tags:/),
    ]);
    expect(await wrong({ resources: Array.from({ length: 140 }, () => `tgrn:${"x".repeat(500)}`) })).toEqual([
      expect.stringMatching(/^body: has more than 65536 characters/),
    ]);
    expect(await wrong({ resources: ["node/1"] })).toEqual([expect.stringMatching(/^resources\.0: /)]);
    expect(await wrong({ statements: [{ ...reader.statements[0], resources: ["*"] }] })).toEqual([
      "statements.0.resources: is not a known field",
    ]);
    expect(await wrong({ name: "../x" })).toEqual([expect.stringMatching(/^name: /)]);
    expect(await own()).toEqual([]);
  });

  it("keep their names", async () => {
    await bench.call("POST", "/v2/policy", { json: reader });
    expect((await bench.call("POST", "/v2/policy", { json: reader })).json).toEqual([
      "name: policy reader already exists",
    ]);
    const renamed = await bench.call("PUT", "/v2/policy/reader", { json: { ...reader, name: "other" } });
    expect(renamed.json).toEqual([expect.stringMatching(/^name: /)]);
  });

  it("are listed as far as the caller may read them", async () => {
    for (const name of ["a", "b"]) await bench.call("POST", "/v2/policy", { json: { ...reader, name } });
    const key = await bench.keyFor(["permissions::read"], ["tgrn:tg::permissions:policy/b"]);
    expect(items((await bench.call("GET", "/v2/policy", { key })).json).map(({ name }) => name)).toEqual(["b"]);
  });
});

describe("service users", () => {
  beforeEach(async () => {
    await bench.call("POST", "/v2/policy", { json: reader });
  });

  it("are created with policies, listed and shown", async () => {
    const json = { name: "bot", policies: ["reader"] };
    const created = await bench.call("POST", "/v2/service-user", { json });
    expect(created.status).toBe(200);
    expect(created.json).toMatchObject(json);
    expect((await bench.call("GET", "/v2/service-user")).json).toEqual([created.json]);
    expect((await bench.call("GET", "/v2/service-user/bot")).json).toEqual(created.json);
    expect((await bench.call("GET", "/v2/service-user/nobody")).status).toBe(404);
    expect((await bench.call("POST", "/v2/service-user", { json })).json).toEqual([
      expect.stringMatching(/^name: .*bot/),
    ]);
    expect((await bench.call("DELETE", "/v2/policy/reader")).json).toEqual({});
    expect((await bench.call("GET", "/v2/service-user/bot")).json).toEqual(created.json);
  });

  it("are created with letters, digits and dashes; one of another name that is stored is read, changed and removed", async () => {
    for (const name of ["a.b", "a_b", "-a", "a b", "a".repeat(129)]) {
      const { status, json } = await bench.call("POST", "/v2/service-user", { json: { name } });
      expect([status, json]).toEqual([422, [expect.stringMatching(/^name: letters, digits and '-'/)]]);
    }
    await bench.access.createServiceUser("a.b_c", [], 1);
    const path = "/v2/service-user/a.b_c";
    const found = await bench.call("GET", path);
    expect(found.json).toMatchObject({ name: "a.b_c", orgId: ORG });
    expect((await bench.call("PUT", path, { json: found.json })).json).toEqual(found.json);
    expect((await bench.call("POST", `${path}/token`)).status).toBe(200);
    expect((await bench.call("DELETE", path)).json).toEqual({});
  });

  it("take null and empty for a status that is not set", async () => {
    for (const [at, status] of ["", null].entries()) {
      const json = { name: `bot-${at}`, status, policies: null, policyIds: null, orgId: "", clientId: null };
      expect((await bench.call("POST", "/v2/service-user", { json })).json).toMatchObject({ status: "active" });
      const path = `/v2/service-user/bot-${at}`;
      await bench.call("PUT", path, { json: { status: "inactive" } });
      const changed = await bench.call("PUT", path, { json: { ...json, name: status } });
      expect(changed.json).toMatchObject({ status: "active", policyIds: [] });
    }
  });

  it("are written back as they were read, also when a policy is gone", async () => {
    const policyIds = ["reader", "builtin-tg-operator", "builtin-tg-admin"];
    const created = await bench.call("POST", "/v2/service-user", { json: { name: "bot", policyIds } });
    expect(created.json).toMatchObject({ policyIds });
    await bench.call("DELETE", "/v2/policy/reader");
    expect((await bench.call("PUT", "/v2/service-user/bot", { json: created.json })).json).toEqual(created.json);
    expect((await bench.call("PUT", "/v2/service-user/bot", { json: { policyIds: ["gone"] } })).json).toEqual([
      "policyIds.0: there is no policy gone",
    ]);
  });

  it("get no policy that is unknown or restricted", async () => {
    await bench.access.createPolicy({ name: "restricted-root", statements: [], resources: ["*"] });
    const json = { name: "bot", policies: ["reader", "restricted-root", "absent"] };
    const answer = await bench.call("POST", "/v2/service-user", { json });
    expect(answer.status).toBe(422);
    expect(answer.json).toEqual([expect.stringMatching(/^policies\.1: /), expect.stringMatching(/^policies\.2: /)]);
    expect((await bench.call("GET", "/v2/service-user/bot")).status).toBe(404);
  });

  it("are given policies only by who may change permissions", async () => {
    const key = await bench.keyFor(["users::modify"]);
    const plain = await bench.call("POST", "/v2/service-user", { key, json: { name: "plain" } });
    expect(plain.status).toBe(200);
    const answer = await bench.call("POST", "/v2/service-user", { key, json: { name: "bot", policies: ["reader"] } });
    expect(answer.json).toMatchObject({
      code: "forbidden",
      details: { action: "permissions::modify", resource: "tgrn:tg::permissions:policy/reader" },
    });
  });

  it("have no credential before one is made", async () => {
    expect((await bench.call("POST", "/v2/service-user/nobody/token")).status).toBe(404);
    await bench.call("POST", "/v2/service-user", { json: { name: "bot" } });
    const made = await bench.call("POST", "/v2/service-user/bot/token");
    const { clientId, clientSecret, secret } = Credential.parse(made.json);
    expect(secret).toBe(clientSecret);
    expect(made.status).toBe(200);
    expect(clientSecret.length).toBeGreaterThan(40);
    const shown = await bench.call("GET", "/v2/service-user/bot");
    expect(members(shown.json)["clientId"]).toBe(clientId);
    expect(shown.text).not.toContain(clientSecret);
    expect(bench.logged.join("")).not.toContain(clientSecret);
  });
});

describe("the rotation of a secret", () => {
  const rotate = async (on: ApiBench) =>
    Credential.extend({ previousExpiresAt: z.int().optional() }).parse(
      (await on.call("POST", "/v2/service-user/bot/token")).json,
    );
  const statusOf = async (on: ApiBench, { clientId, secret }: { clientId: string; secret: string }) =>
    (await on.call("GET", "/org/mine", { key: `${clientId}:${secret}` })).status;
  const bearerOf = async (on: ApiBench, { clientId, secret }: { clientId: string; secret: string }) =>
    z
      .object({ token: z.string() })
      .parse((await on.call("POST", "/v2/auth/token", { json: { clientId, secret } })).json).token;

  it("ends the earlier one at once by default", async () => {
    await bench.call("POST", "/v2/service-user", { json: { name: "bot" } });
    const [first, second] = [await rotate(bench), await rotate(bench)];
    expect(second).not.toHaveProperty("previousExpiresAt");
    expect([await statusOf(bench, first), await statusOf(bench, second)]).toEqual([401, 200]);
  });

  it("keeps the newest two valid for exactly the overlap, with their tokens", async () => {
    const clock = new FakeClock();
    const on = await ApiBench.create(clock, { secretOverlapSeconds: 600 });
    await on.call("POST", "/v2/service-user", { json: { name: "bot" } });
    const first = await rotate(on);
    expect(first).not.toHaveProperty("previousExpiresAt");
    const second = await rotate(on);
    expect(second.previousExpiresAt).toBe(clock.now() / 1000 + 600);
    const token = await bearerOf(on, first);
    await clock.advance(599_999);
    expect([await statusOf(on, first), await statusOf(on, second)]).toEqual([200, 200]);
    expect((await on.call("GET", "/org/mine", { key: `Bearer ${token}` })).status).toBe(200);
    await clock.advance(1);
    expect([await statusOf(on, first), await statusOf(on, second)]).toEqual([401, 200]);
    expect((await on.call("GET", "/org/mine", { key: `Bearer ${token}` })).status).toBe(401);
    const [third, fourth] = [await rotate(on), await rotate(on)];
    expect([await statusOf(on, second), await statusOf(on, third), await statusOf(on, fourth)]).toEqual([
      401, 200, 200,
    ]);
  });

  it("leaves no credential to a user that is inactive or deleted", async () => {
    const on = await ApiBench.create(new FakeClock(), { secretOverlapSeconds: 600 });
    await on.call("POST", "/v2/service-user", { json: { name: "bot" } });
    const [first, second] = [await rotate(on), await rotate(on)];
    const token = await bearerOf(on, second);
    const all = async () => [
      await statusOf(on, first),
      await statusOf(on, second),
      (await on.call("GET", "/org/mine", { key: `Bearer ${token}` })).status,
    ];
    await on.call("PUT", "/v2/service-user/bot", { json: { status: "inactive" } });
    expect(await all()).toEqual([401, 401, 401]);
    await on.call("PUT", "/v2/service-user/bot", { json: { status: "active" } });
    expect(await all()).toEqual([200, 200, 200]);
    await on.call("DELETE", "/v2/service-user/bot");
    expect(await all()).toEqual([401, 401, 401]);
  });
});

describe("the change of a service user", () => {
  beforeEach(async () => {
    for (const name of ["reader", "a"]) await bench.call("POST", "/v2/policy", { json: { ...reader, name } });
    await bench.call("POST", "/v2/service-user", {
      json: { name: "bot", status: "active", policyIds: ["reader"], orgId: "" },
    });
  });

  it("replaces its policies in their order, and its status", async () => {
    const json = { name: "bot", status: "inactive", policyIds: ["reader", "a"], orgId: "" };
    const changed = await bench.call("PUT", "/v2/service-user/bot", { json });
    expect(changed.json).toMatchObject({ name: "bot", status: "inactive", policyIds: ["reader", "a"] });
    expect((await bench.call("GET", "/v2/service-user/bot")).json).toEqual(changed.json);
    expect((await bench.call("PUT", "/v2/service-user/bot", { json: changed.json })).json).toEqual(changed.json);
    const none = await bench.call("PUT", "/v2/service-user/bot", { json: { policyIds: null } });
    expect(none.json).toMatchObject({ status: "active", policyIds: [] });
  });

  it("refuses another name, an unknown user and an unknown policy", async () => {
    const call = async (name: string, json: unknown) => {
      const { status, json: answer } = await bench.call("PUT", `/v2/service-user/${name}`, { json });
      return [status, answer];
    };
    expect(await call("bot", { name: "other" })).toEqual([422, [expect.stringMatching(/^name: must be bot/)]]);
    expect(await call("bot", { policyIds: ["absent"] })).toEqual([422, [expect.stringMatching(/^policyIds\.0: /)]]);
    expect((await call("nobody", {}))[0]).toBe(404);
    expect((await bench.call("DELETE", "/v2/service-user/nobody")).status).toBe(404);
  });

  it("needs permissions::modify for policies that come or go, and for all when it is activated", async () => {
    const key = await bench.keyFor(["users::modify"]);
    const put = async (json: unknown) => (await bench.call("PUT", "/v2/service-user/bot", { key, json })).status;
    expect(await put({ policyIds: ["reader"] })).toBe(200);
    expect(await put({ policyIds: ["reader", "a"] })).toBe(403);
    expect(await put({ policyIds: ["reader"], status: "inactive" })).toBe(200);
    expect(await put({ policyIds: ["reader"], status: "active" })).toBe(403);
    expect(await put({ policyIds: [], status: "active" })).toBe(403);
    const stranger = await bench.keyFor(["users::read", "permissions::modify"]);
    expect((await bench.call("PUT", "/v2/service-user/bot", { key: stranger, json: {} })).status).toBe(403);
    expect((await bench.call("DELETE", "/v2/service-user/bot", { key: stranger })).status).toBe(403);
    expect((await bench.call("DELETE", "/v2/service-user/bot", { key })).status).toBe(200);
    expect((await bench.call("GET", "/v2/service-user/bot")).status).toBe(404);
  });
});

it("every change of who may do what is recorded with who made it, and a refused one is not", async () => {
  await bench.call("POST", "/v2/policy", { json: reader });
  await bench.call("POST", "/v2/policy", { json: reader });
  await bench.call("PUT", "/v2/policy/reader", { json: { ...reader, resources: ["tgrn:tg::nodes:node/*"] } });
  await bench.call("POST", "/v2/service-user", { json: { name: "bot" } });
  await bench.call("POST", "/v2/service-user/bot/token");
  await bench.call("POST", "/v2/service-user/nobody/token");
  await bench.call("PUT", "/v2/service-user/bot", { json: { status: "inactive" } });
  await bench.call("PUT", "/v2/service-user/nobody", { json: {} });
  await bench.call("DELETE", "/v2/service-user/bot");
  await bench.call("DELETE", "/v2/policy/reader");
  await bench.call("DELETE", "/v2/policy/reader");
  expect(await bench.fleet.changes()).toEqual([
    "admin: Policy reader on * created",
    "admin: Policy reader on tgrn:tg::nodes:node/* replaced",
    "admin: Service user bot created",
    "admin: Credential of service user bot generated",
    "admin: Service user bot changed",
    "admin: Service user bot deleted",
    "admin: Policy reader deleted",
  ]);
});

describe("a change of who may do what whose record cannot be stored", () => {
  const credential = async () => (await bench.call("POST", "/v2/service-user/bot/token")).json;
  const request = (method: string, path: string, json?: unknown) =>
    bench.app.request(path, {
      method,
      headers: { authorization: ADMIN_KEY, "content-type": "application/json" },
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
    });
  const state = async () => [
    (await bench.call("GET", "/v2/policy")).json,
    (await bench.call("GET", "/v2/service-user")).json,
  ];

  beforeEach(async () => {
    for (const name of ["reader", "spare"]) await bench.call("POST", "/v2/policy", { json: { ...reader, name } });
    await bench.call("POST", "/v2/service-user", { json: { name: "bot", policies: ["reader"] } });
  });

  it.each<[string, string, unknown?]>([
    ["POST", "/v2/policy", { ...reader, name: "other" }],
    ["PUT", "/v2/policy/reader", { ...reader, resources: ["tgrn:tg::nodes:node/*"] }],
    ["DELETE", "/v2/policy/spare"],
    ["POST", "/v2/service-user", { name: "other" }],
    ["PUT", "/v2/service-user/bot", { policyIds: ["spare"], status: "inactive" }],
    ["DELETE", "/v2/service-user/bot"],
    ["POST", "/v2/service-user/bot/token"],
  ])("is not stored either: %s %s", async (method, path, json) => {
    const { clientId, secret } = Credential.parse(await credential());
    const before = await state();
    await bench.fleet.store.query("ALTER TABLE events RENAME TO events_away");
    expect((await request(method, path, json)).status).toBeGreaterThanOrEqual(500);
    await bench.fleet.store.query("ALTER TABLE events_away RENAME TO events");
    expect(await state()).toEqual(before);
    expect((await bench.call("GET", "/org/mine", { key: `${clientId}:${secret}` })).status).toBe(200);
    expect((await request(method, path, json)).status).toBe(200);
    expect(await state()).not.toEqual(before);
  });
});
