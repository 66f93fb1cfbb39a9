import { beforeEach, describe, expect, it } from "vitest";
import { permissions, tgrn } from "../../../../src/controller/access/policies/permissions.ts";
import { ApiBench, items } from "../../../support/control-plane/api-bench.ts";

const READER = {
  name: "reader",
  statements: [
    { effect: "noop", actions: ["nodes::read"] },
    { effect: "allow", actions: ["node::read", "users::read"] },
  ],
  resources: ["tgrn:tg::nodes:node/*"],
  conditions: { any: { eq: { "tg:node:tags:env": ["prod"] } } },
};
const DENIER = { name: "denier", statements: [{ effect: "deny", actions: ["nodes::read"] }], resources: ["*"] };

let bench: ApiBench;
let uid = "";
const simulate = async (json: object) => (await bench.call("POST", "/v2/policy/simulate", { json })).json;

beforeEach(async () => {
  bench = await ApiBench.create();
  uid = (await bench.fleet.add({ name: "one", tags: { env: "prod" } })).uid;
  await bench.call("POST", "/v2/policy", { json: READER });
  await bench.call("POST", "/v2/service-user", {
    json: { name: "bot", policyIds: ["reader", "builtin-tg-apps-user"] },
  });
});

describe("a simulation", () => {
  it("tells for a service user what takes part, and why the rest does not", async () => {
    const of = (more: object) => simulate({ serviceUser: "bot", action: "nodes::read", ...more });
    const apps = { policy: "builtin-tg-apps-user", reason: "action" };
    const allowed = {
      decision: "allow",
      matched: [{ policy: "reader", source: "user", statement: 1, effect: "allow" }],
      skipped: [apps],
    };
    expect(await of({ resource: tgrn.node(uid) })).toEqual(allowed);
    expect(await of({ resource: tgrn.node("unknown"), tags: { env: "prod" } })).toEqual(allowed);
    const none = (reason: string) => ({ decision: "none", matched: [], skipped: [{ policy: "reader", reason }, apps] });
    expect(await of({ resource: tgrn.node(uid), tags: {} })).toEqual(none("condition"));
    expect(await of({ resource: tgrn.node("unknown") })).toEqual(none("condition"));
    expect(await of({})).toEqual(none("resource"));
    expect(await of({ resource: tgrn.node(uid), action: "nodes::delete" })).toEqual(none("action"));
  });

  it("takes policies that are not stored, and another spelling of the action", async () => {
    const json = { policies: [READER, DENIER], action: "node::read", resource: tgrn.node(uid) };
    expect(await simulate(json)).toEqual({
      decision: "deny",
      matched: [
        { policy: "reader", source: "request", statement: 1, effect: "allow" },
        { policy: "denier", source: "request", statement: 0, effect: "deny" },
      ],
      skipped: [],
    });
  });

  it("decides as the API does", async () => {
    const made = await bench.call("POST", "/v2/service-user/bot/token");
    const { clientId, secret } = made.json as { clientId: string; secret: string };
    const other = (await bench.fleet.add({ name: "two", tags: { env: "dev" } })).uid;
    for (const node of [uid, other]) {
      const { decision } = (await simulate({
        serviceUser: "bot",
        action: "nodes::read",
        resource: tgrn.node(node),
      })) as { decision: string };
      const { status } = await bench.call("GET", `/node/${node}`, { key: `${clientId}:${secret}` });
      expect(status === 200).toBe(decision === "allow");
    }
  });

  it("is refused without one subject, and for what is unknown", async () => {
    const action = "nodes::read";
    for (const [json, line] of [
      [{ action }, /^body: needs one of serviceUser, user and policies/],
      [{ action, user: "admin", policies: [] }, /^body: needs one of/],
      [{ action, serviceUser: "nobody" }, /^serviceUser: there is no service user nobody/],
      [{ action, user: "bot" }, /^user: there is no user bot/],
      [{ action: "nodes::fly", user: "admin" }, /^action: is not a permission/],
      [{ action, policies: [{ ...DENIER, resources: ["x"] }] }, /^policies\.0\.resources\.0: /],
    ] as const)
      expect(await simulate(json)).toEqual([expect.stringMatching(line)]);
    expect(await simulate({ user: "admin", action })).toMatchObject({ decision: "allow" });
  });

  it("shows neither the policies of a user nor the tags of a node to who may not read them", async () => {
    const key = await bench.keyFor(["permissions::read"]);
    const ask = async (json: object, by = key) =>
      (await bench.call("POST", "/v2/policy/simulate", { key: by, json: { action: "nodes::read", ...json } })).json;
    const resource = tgrn.node(uid);
    const missing = (action: string, on: string) => ({ code: "forbidden", details: { action, resource: on } });
    for (const name of ["bot", "nobody"]) {
      expect(await ask({ serviceUser: name })).toMatchObject(missing("users::read", tgrn.serviceUser(name)));
    }
    expect(await ask({ user: "admin" })).toMatchObject(missing("users::read", "*"));
    expect(await ask({ policies: [READER], resource })).toMatchObject(missing("nodes::read", resource));
    expect(await ask({ policies: [READER], resource, tags: {} })).toMatchObject({ decision: "none" });
    const more = await bench.keyFor(["permissions::read", "users::read", "nodes::read"]);
    expect(await ask({ serviceUser: "bot", resource }, more)).toMatchObject({ decision: "allow" });
  });

  it("needs permissions::read on everything, and records nothing", async () => {
    const key = await bench.keyFor(["permissions::read"], [tgrn.policy("reader")]);
    const answer = await bench.call("POST", "/v2/policy/simulate", {
      key,
      json: { user: "admin", action: "nodes::read" },
    });
    expect(answer.json).toMatchObject({ details: { action: "permissions::read", resource: "*" } });
    await bench.fleet.forget();
    await simulate({ user: "admin", action: "nodes::read" });
    expect(await bench.fleet.changes()).toEqual([]);
  });
});

describe("the list of permissions", () => {
  it("has all of them with their aliases, and the known events", async () => {
    const listed = items((await bench.call("GET", "/v2/permission")).json);
    expect(listed).toEqual(permissions);
    expect(listed).toContainEqual({
      id: "nodes::read",
      family: "nodes",
      description: "Read nodes, clusters and their tags",
      aliases: ["node::read"],
    });
    expect(listed.map(({ id }) => id)).toContain("nodes::service:tg-ping");
  });

  it("holds only what a policy takes", async () => {
    const actions = permissions.flatMap(({ id, aliases }) => [id].concat(aliases));
    const json = { name: "all", statements: [{ effect: "allow", actions }], resources: ["*"] };
    expect((await bench.call("POST", "/v2/policy", { json })).json).toMatchObject({ statements: [{ actions }] });
  });
});
