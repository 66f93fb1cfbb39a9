import { randomUUID } from "node:crypto";
import { setImmediate as nextTurn } from "node:timers/promises";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { beforeEach, describe, expect, it } from "vitest";
import { peekClaims } from "../../../../src/protocol/channel/jws.ts";
import { ADMIN_KEY, ApiBench, items, members } from "../../../support/control-plane/api-bench.ts";
import type { NodeRecord } from "../../../../src/controller/nodes/records.ts";

let bench: ApiBench;
let one: NodeRecord;
let two: NodeRecord;

beforeEach(async () => {
  bench = await ApiBench.create();
  await bench.fleet.services.clusters.create({ name: "pair" }, "test");
  one = await bench.fleet.add({ name: "one", tags: { site: "berlin", tier: "1" } });
  two = await bench.fleet.add({ name: "two", type: "Agent", cluster: "pair.example.net", isOnline: false });
});

/** Stores copies of a node under these names, by one statement. */
async function copyNode({ uid }: NodeRecord, names: readonly string[]): Promise<void> {
  const { store } = bench.fleet;
  const [row = {}] = await store.query(`SELECT * FROM nodes WHERE uid = '${uid}'`);
  const columns = Object.keys(row);
  const own = new Map([
    ["uid", "copy_uid"],
    ["name", "copy_name"],
    ["fqdn", "copy_name || '.example.net'"],
    ...["auth", "overlay", "wireguard", "speed_token"].map((name) => [name, `copy_uid || '${name}'`] as const),
  ]);
  const copies = names.map((name) => `('${name}', '${randomUUID()}')`).join(", ");
  await store.query(
    `WITH copies (copy_name, copy_uid) AS (VALUES ${copies}) INSERT INTO nodes (${columns.join(", ")})
     SELECT ${columns.map((name) => own.get(name) ?? name).join(", ")} FROM nodes, copies WHERE uid = '${uid}'`,
  );
}

const uids = (json: unknown): unknown[] => items(json).map(({ uid }) => uid);

describe("GET /node", () => {
  it("lists every node with empty config and shadow", async () => {
    const { status, json } = await bench.call("GET", "/node");
    expect(status).toBe(200);
    expect(uids(json)).toEqual([one.uid, two.uid]);
    expect(items(json)[0]).toMatchObject({
      config: {},
      shadow: {},
      tgTags: { type: "Node", vendor: "kvm", model: "kvm" },
      location: {},
      fqdn: "one.example.net",
    });
    expect(items(json)[0]).not.toHaveProperty("orderID");
    expect(items(json)[0]).not.toHaveProperty("org");
  });

  it("assigns tags of the system in the form of tags, which nobody can set", async () => {
    const device = { vendor: "Acme Inc.", model: "", mac: "", wan: "" };
    const reported = { "os.distro.id": "debian", "os.arch": "amd64" };
    const three = await bench.fleet.add({ name: "three", device, reported });
    const { json } = await bench.call("PUT", `/node/${three.uid}/tag/site`, { json: { value: "north" } });
    expect(json).toMatchObject({
      tags: { site: "north" },
      tgTags: { type: "Node", vendor: "Acme-Inc-", os: "debian", arch: "amd64" },
    });
    expect(members(json)["tgTags"]).not.toHaveProperty("model");
    expect(uids((await bench.call("GET", "/node?tags=os:debian")).json)).toEqual([]);
  });

  it("filters by cluster and by every tag", async () => {
    expect(uids((await bench.call("GET", "/node?cluster=pair.example.net")).json)).toEqual([two.uid]);
    expect(uids((await bench.call("GET", "/node?tags=site:berlin")).json)).toEqual([one.uid, two.uid]);
    expect(uids((await bench.call("GET", "/node?tags=site:berlin,tier:1")).json)).toEqual([one.uid]);
    expect(uids((await bench.call("GET", "/node?tags=tier:2")).json)).toEqual([]);
  });

  it("names the wrong query field in an array of strings", async () => {
    const { status, json } = await bench.call("GET", "/node?tags=nocolon&cluster=UPPER");
    expect(status).toBe(422);
    expect(json).toEqual([expect.stringMatching(/^cluster: /), expect.stringMatching(/^tags\.0: /)]);
  });

  it("shows just what a projection asks for", async () => {
    const query = "projection[]=name&projection[0][0]=shadow&projection[0][1]=reported&projection[0][2]=memory";
    const [first] = items((await bench.call("GET", `/node?${query}`)).json);
    expect(Object.keys(first ?? {}).sort()).toEqual(
      ["uid", "state", "type", "tags", "tgTags", "tgrn", "keys", "name", "shadow"].sort(),
    );
    expect(first?.["shadow"]).toEqual({ reported: { memory: 2048 } });
  });

  it("shows each field as the node itself shows it", async () => {
    const reported = { "os.distro.id": "debian", "os.arch": 64, memory: 2048 };
    const cluster = "pair.example.net";
    const { uid } = await bench.fleet.add({ name: "three", cluster, reported, lifecycleState: "production" });
    const whole = members((await bench.call("GET", `/node/${uid}`)).json);
    expect(whole["tgTags"]).toEqual({ type: "Node", vendor: "kvm", model: "kvm", os: "debian" });
    const base = ["uid", "state", "type", "tags", "tgTags", "tgrn", "keys"];
    const fields = Object.keys(whole).filter((field) => ![...base, "org", "domain"].includes(field));
    expect(fields).toEqual(expect.arrayContaining(["heartbeat", "location", "device", "config", "shadow"]));
    for (const field of fields) {
      const { json } = await bench.call("GET", `/node?cluster=${cluster}&projection[0]=${field}`);
      const shown = items(json).find((node) => node["uid"] === uid);
      expect(shown).toEqual(Object.fromEntries([...base, field].map((name) => [name, whole[name]])));
    }
    const listed = items((await bench.call("GET", "/node")).json).find((node) => node["uid"] === uid);
    expect({ ...listed, config: whole["config"], shadow: whole["shadow"] }).toEqual(
      Object.fromEntries(Object.entries(whole).filter(([name]) => !["org", "domain"].includes(name))),
    );
  });

  it("is compressed as the client accepts it, and not while it is short", async () => {
    const ask = (accepted: string) =>
      bench.app.request("/node", { headers: { authorization: ADMIN_KEY, "accept-encoding": accepted } });
    const short = await ask("br, gzip");
    expect([short.headers.get("content-encoding"), short.headers.get("vary")]).toEqual([null, "accept-encoding"]);
    expect(await short.json()).toHaveLength(2);
    for (const name of ["three", "four", "five", "six", "seven"]) await bench.fleet.add({ name });
    const plain = await ask("identity");
    const text = await plain.text();
    expect([plain.headers.get("content-encoding"), text.length > 4096]).toEqual([null, true]);
    for (const [coding, decode] of [
      ["br", brotliDecompressSync],
      ["gzip", gunzipSync],
    ] as const) {
      const packed = await ask(coding);
      const { headers } = packed;
      expect(["content-encoding", "content-type", "vary"].map((name) => headers.get(name))).toEqual([
        coding,
        "application/json",
        "accept-encoding",
      ]);
      const bytes = Buffer.from(await packed.arrayBuffer());
      expect(bytes.length).toBeLessThan(text.length);
      expect(decode(bytes).toString()).toBe(text);
    }
  });

  it("refuses flat shadow and config as too large", async () => {
    const { status, json } = await bench.call("GET", "/node?projection[]=shadow");
    expect([status, json]).toEqual([422, [expect.stringMatching(/^projection: shadow is too large/)]]);
  });

  it("leaves out what the caller may not read", async () => {
    const key = await bench.keyFor(["nodes::read"], [`tgrn:tg::nodes:node/${two.uid}`]);
    expect(uids((await bench.call("GET", "/node", { key })).json)).toEqual([two.uid]);
    const denied = await bench.keyFor(["*"], ["*"], ["nodes::read"]);
    expect((await bench.call("GET", "/node", { key: denied })).status).toBe(403);
  });

  it("shows each node once, in order, and lets other requests in between", async () => {
    // More than are read at a time.
    const names = Array.from({ length: 501 }, (_, n) => `p${n}`);
    await copyNode(one, names);
    let isDone = false;
    const list = bench.call("GET", "/node?projection[]=name").then((answer) => {
      isDone = true;
      return answer;
    });
    await nextTurn();
    expect(isDone).toBe(false);
    const shown = items((await list).json).map(({ name }) => name);
    expect(shown).toEqual(["one", ...names, "two"].sort((a, b) => (`${a}.` < `${b}.` ? -1 : 1)));
  });

  it("shows each reader its own nodes as they are, whoever asked before", async () => {
    const key = await bench.keyFor(["nodes::read"], [`tgrn:tg::nodes:node/${two.uid}`]);
    const listed = async (reader?: string) =>
      items((await bench.call("GET", "/node", reader === undefined ? {} : { key: reader })).json);
    expect(uids(await listed())).toEqual([one.uid, two.uid]);
    expect(uids(await listed(key))).toEqual([two.uid]);
    await bench.call("PUT", `/node/${two.uid}/tag/site`, { json: { value: "rome" } });
    const clientKey = { kty: "OKP", crv: "X25519", x: "A".repeat(43) };
    await bench.call("PUT", `/node/${two.uid}/keys/apigw`, { json: clientKey });
    await bench.fleet.services.clusters.setTags("pair.example.net", { env: "prod" }, "test");
    for (const reader of [undefined, key]) {
      const node = (await listed(reader)).find(({ uid }) => uid === two.uid);
      expect(node).toMatchObject({
        tags: { site: "rome" },
        inheritedTags: { env: "prod" },
        keys: { apigw: clientKey.x },
      });
    }
    expect((await listed())[0]).toMatchObject({ tags: one.tags });
  });

  it("answers HEAD without a body", async () => {
    const { status, text } = await bench.call("HEAD", "/node");
    expect([status, text]).toEqual([200, ""]);
  });
});

describe("one node", () => {
  it("is shown whole, with organization and domain only by its uid", async () => {
    const { json } = await bench.call("GET", `/node/${one.uid}`);
    expect(json).toMatchObject({
      uid: one.uid,
      org: one.org,
      domain: "example.net",
      online: true,
      tgrn: `tgrn:tg::nodes:node/${one.uid}`,
      config: one.config,
      shadow: { reported: one.reported, desired: {} },
      last_connect: 1_760_000_000_123,
      created_at: 1_750_000_000,
      heartbeat: { nodeId: one.uid, orgId: one.org, timestamp: 1_760_000_000, source: "control-channel", seq: 4 },
    });
    expect(Object.keys(members(members(json)["keys"])).sort()).toEqual(["identity", "overlay", "wireguard"]);
    const byName = members((await bench.call("GET", "/node/by-fqdn/one.example.net")).json);
    expect(byName["uid"]).toBe(one.uid);
    expect(byName).not.toHaveProperty("org");
  });

  it("leaves out what is not known yet", async () => {
    const fresh = await bench.fleet.add({
      name: "fresh",
      lastIp: undefined,
      lastConnect: undefined,
      heartbeat: undefined,
      device: undefined,
      lifecycleState: undefined,
      disconnectTime: undefined,
    });
    const json = members((await bench.call("GET", `/node/${fresh.uid}`)).json);
    for (const field of [
      "lastip",
      "last_connect",
      "heartbeat",
      "device",
      "lifecycleState",
      "disconnectTime",
      "cluster",
    ]) {
      expect(json).not.toHaveProperty(field);
    }
  });

  it("is found whatever the case of its uid, and not found when there is none", async () => {
    expect((await bench.call("GET", `/node/${one.uid.toUpperCase()}`)).status).toBe(200);
    for (const path of [
      "/node/00000000-0000-4000-8000-000000000000",
      "/node/nonsense",
      "/node/by-fqdn/no.example.net",
    ]) {
      const { status, json } = await bench.call("GET", path);
      expect(status).toBe(404);
      expect(json).toMatchObject({ code: "not-found" });
    }
  });

  it("is found by its name in any case and with the dot of the root", async () => {
    for (const name of ["ONE.Example.NET", "one.example.net.", "One.example.net."]) {
      expect((await bench.call("GET", `/node/by-fqdn/${name}`)).json).toMatchObject({ uid: one.uid });
    }
    expect((await bench.call("GET", "/node/by-fqdn/one.example.net..")).status).toBe(404);
  });

  it("is refused alike whether it is out of reach or absent", async () => {
    const key = await bench.keyFor(["nodes::read"], [`tgrn:tg::nodes:node/${two.uid}`]);
    const asked = async (name: string) => {
      const { status, text } = await bench.call("GET", `/node/by-fqdn/${name}.example.net`, { key });
      return { status, text: text.replaceAll(`${name}.example.net`, "X") };
    };
    const absent = await asked("nowhere");
    expect(absent.status).toBe(403);
    expect(await asked("one")).toEqual(absent);
    expect((await asked("two")).status).toBe(200);
  });
});

describe("the tags that a node inherits", () => {
  const cluster = "pair.example.net";
  const inherited = { site: "rome", env: "prod" };
  const put = (json: unknown, key = ADMIN_KEY) => bench.call("PUT", `/node/${one.uid}`, { json, key });

  beforeEach(async () => {
    await bench.fleet.services.clusters.setTags(cluster, inherited, "test");
  });

  it("are shown apart from its own, as those of its cluster, wherever the node is", async () => {
    expect((await bench.call("GET", `/node/${one.uid}`)).json).not.toHaveProperty("inheritedTags");
    const joined = await put({ cluster });
    const listed = async (query = "") => items((await bench.call("GET", `/node${query}`)).json)[0];
    const shown = [
      joined.json,
      (await bench.call("GET", `/node/${one.uid}`)).json,
      (await bench.call("GET", `/node/by-fqdn/${one.fqdn}`)).json,
      await listed(),
      await listed("?projection[]=inheritedTags"),
    ];
    for (const node of shown) expect(node).toMatchObject({ tags: one.tags, inheritedTags: inherited });
    expect(await listed("?projection[]=name")).not.toHaveProperty("inheritedTags");
    await bench.fleet.services.clusters.setTags(cluster, {}, "test");
    expect(members((await bench.call("GET", `/node/${one.uid}`)).json)["inheritedTags"]).toEqual({});
    expect((await put({ cluster: null })).json).not.toHaveProperty("inheritedTags");
  });

  it("count for the filter of the list, its own first, with and without a projection", async () => {
    await put({ cluster });
    const found = async (query: string) => uids((await bench.call("GET", `/node?${query}`)).json);
    expect(await found("tags=env:prod")).toEqual([one.uid, two.uid]);
    expect(await found("tags=env:prod,tier:1")).toEqual([one.uid]);
    expect(await found("tags=site:berlin&projection[]=name")).toEqual([one.uid, two.uid]);
    expect(await found("tags=site:rome")).toEqual([]);
    const { json } = await bench.call("GET", "/node?tags=env:prod&projection[]=name");
    for (const node of items(json)) expect(node).not.toHaveProperty("inheritedTags");
    const reader = await bench.keyFor(["nodes::read"], [`tgrn:tg::nodes:node/${two.uid}`]);
    expect(uids((await bench.call("GET", "/node?tags=env:prod", { key: reader })).json)).toEqual([two.uid]);
    await put({ cluster: null });
    expect(await found("tags=env:prod")).toEqual([two.uid]);
  });

  it("let a condition of a policy and the filter of the list select the same nodes", async () => {
    await put({ cluster });
    for (const [name, value, nodes] of [
      ["env", "prod", [one.uid, two.uid]],
      ["site", "berlin", [one.uid, two.uid]],
      ["site", "rome", []],
      ["tier", "1", [one.uid]],
    ] as const) {
      const statements = [{ effect: "allow" as const, actions: ["nodes::read"] }];
      const conditions = { all: { eq: { [`tg:node:tags:${name}`]: [value] } } };
      const key = await bench.keyHolding([
        { name: "tagged", statements, resources: ["tgrn:tg::nodes:node/*"], conditions },
      ]);
      expect([name, value, uids((await bench.call("GET", "/node", { key })).json)]).toEqual([name, value, nodes]);
      expect(uids((await bench.call("GET", `/node?tags=${name}:${value}`)).json)).toEqual(nodes);
    }
  });

  it("cannot be written at the node", async () => {
    const answer = await put({ cluster, inheritedTags: { site: "paris" } });
    expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(/^inheritedTags: /)]]);
  });

  it("are for whoever may read the node, and no more of the cluster is", async () => {
    await put({ cluster });
    const reader = await bench.keyFor(["nodes::read"], [`tgrn:tg::nodes:node/${one.uid}`]);
    const shown = members((await bench.call("GET", `/node/${one.uid}`, { key: reader })).json);
    expect(shown["inheritedTags"]).toEqual(inherited);
    expect((await bench.call("GET", `/cluster/${cluster}`, { key: reader })).status).toBe(403);
    expect((await bench.call("GET", `/node/${two.uid}`, { key: reader })).status).toBe(403);
    const on = [`tgrn:tg::nodes:node/${one.uid}`, `tgrn:tg::nodes:cluster/${cluster}`];
    const writer = await bench.keyFor(["nodes::manage", "nodes::cluster"], on);
    await put({ cluster: null });
    expect((await put({ cluster }, writer)).json).toEqual({ uid: one.uid, cluster });
  });
});

describe("PUT /node/{nodeID}", () => {
  const put = (json: unknown, key?: string) =>
    bench.call("PUT", `/node/${one.uid}`, key === undefined ? { json } : { json, key });

  it("changes state and cluster, and null leaves the cluster", async () => {
    expect((await put({ state: "INACTIVE" })).json).toMatchObject({ state: "INACTIVE" });
    expect((await put({ cluster: "pair.example.net" })).json).toMatchObject({ cluster: "pair.example.net" });
    expect((await put({ cluster: null })).json).not.toHaveProperty("cluster");
    expect(await bench.fleet.users()).toContain("admin");
  });

  it("takes null and empty for a field that is not set", async () => {
    const cluster = "pair.example.net";
    for (const written of ["", null]) {
      await put({ state: "INACTIVE", cluster });
      expect((await put({ state: written, cluster })).json).toMatchObject({ state: "INACTIVE", cluster });
      expect((await put({ cluster: written })).json).not.toHaveProperty("cluster");
      const part = await put({ cluster: written }, await bench.keyFor(["nodes::manage"]));
      expect(part.json).toEqual({ uid: one.uid, cluster: written });
      expect((await put({ state: written })).json).toEqual([expect.stringMatching(/^body: needs/)]);
    }
  });

  it.each([
    [{}, /^body: needs/],
    [{ state: "OFF" }, /^state: /],
    [{ state: "ACTIVE", name: "x" }, /name/],
    [{ cluster: "none.example.net" }, /^cluster: there is no/],
    [[], /^body: /],
  ])("refuses %j", async (json, line) => {
    const answer = await put(json);
    expect(answer.status).toBe(422);
    expect(answer.json).toEqual([expect.stringMatching(line)]);
    expect(await bench.fleet.node(one.uid)).toEqual(one);
  });

  it("lets nobody join again without nodes::cluster when an operator takes the node out meanwhile", async () => {
    const key = await bench.keyFor(["nodes::manage"]);
    const cluster = "pair.example.net";
    for (let round = 0; round < 5; round += 1) {
      await bench.fleet.services.nodes.update(one.uid, { cluster }, "test");
      await Promise.all([put({ cluster: null }), put({ cluster }, key), put({ cluster }, key)]);
      expect((await bench.fleet.node(one.uid))?.cluster).toBeUndefined();
    }
  });

  it("takes nodes::manage on the node and nodes::cluster on the cluster, and nothing less", async () => {
    const on = [`tgrn:tg::nodes:node/${one.uid}`, "tgrn:tg::nodes:cluster/pair.example.net"];
    const key = await bench.keyFor(["nodes::manage", "nodes::read", "nodes::cluster"], on);
    expect((await put({ state: "INACTIVE", cluster: "pair.example.net" }, key)).json).toMatchObject({
      state: "INACTIVE",
      cluster: "pair.example.net",
    });
    expect((await put({ cluster: null }, await bench.keyFor(["nodes::cluster"]))).status).toBe(403);
    expect((await bench.fleet.node(one.uid))?.cluster).toBe("pair.example.net");
  });
});

describe("the other changes of a node", () => {
  it("deletes it", async () => {
    expect((await bench.call("DELETE", `/node/${one.uid}`)).json).toEqual({});
    expect((await bench.call("DELETE", `/node/${one.uid}`)).status).toBe(404);
  });

  it("sets its lifecycle state", async () => {
    const path = `/v2/node/${one.uid}/lifecycle-state`;
    expect((await bench.call("PUT", path, { json: { lifecycleState: "maintenance" } })).json).toMatchObject({
      lifecycleState: "maintenance",
    });
    const refused = await bench.call("PUT", path, { json: { lifecycleState: "retired" } });
    expect(refused.json).toEqual([expect.stringMatching(/^lifecycleState: /)]);
  });

  it("sets and removes tags", async () => {
    const path = `/node/${one.uid}/tag/owner`;
    expect((await bench.call("PUT", path, { json: { value: "net-ops" } })).json).toMatchObject({
      tags: { owner: "net-ops", site: "berlin" },
    });
    expect((await bench.call("DELETE", path)).json).toEqual({});
    expect((await bench.fleet.node(one.uid))?.tags).toEqual(one.tags);
    expect((await bench.call("DELETE", path)).status).toBe(404);
  });

  it.each(["sp%20ace", "__proto__", "constructor", "prototype", "a".repeat(129), "%E0%A4%A"])(
    "refuses the tag %s",
    async (name) => {
      const answer = await bench.call("PUT", `/node/${one.uid}/tag/${name}`, { json: { value: "x" } });
      expect(answer.status).toBe(422);
      expect(answer.json).toEqual([expect.stringMatching(/^tagName: /)]);
    },
  );

  it("keeps tags above the limit that are stored: they are shown, changed and removed", async () => {
    const tags = Object.fromEntries(Array.from({ length: 60 }, (_, index) => [`t${index}`, "x"]));
    const { uid } = await bench.fleet.add({ name: "many", tags });
    expect((await bench.call("GET", `/node/${uid}`)).json).toMatchObject({ tags });
    expect((await bench.call("PUT", `/node/${uid}/tag/t1`, { json: { value: "y" } })).status).toBe(200);
    expect((await bench.call("DELETE", `/node/${uid}/tag/t1`)).status).toBe(200);
    expect((await bench.call("PUT", `/node/${uid}/tag/t1`, { json: { value: "y" } })).status).toBe(422);
    const { t1: _, t2: __, ...fewer } = tags;
    const put = (json: object) => bench.call("PUT", `/node/${uid}/tags`, { json: { tags: json } });
    expect((await put({ ...fewer, t3: "z" })).json).toMatchObject({ tags: { t3: "z" } });
    expect((await put({ ...fewer, t2: "x" })).json).toEqual(["tags: must be at most 50"]);
    expect((await bench.call("PUT", `/node/${uid}`, { json: { state: "INACTIVE" } })).json).toMatchObject({
      state: "INACTIVE",
      tags: { ...fewer, t3: "z" },
    });
  });

  it("bounds the number of tags", async () => {
    const tags = Object.fromEntries(Array.from({ length: 50 }, (_, index) => [`t${index}`, "x"]));
    const full = await bench.fleet.add({ name: "full", tags });
    expect((await bench.call("PUT", `/node/${full.uid}/tag/more`, { json: { value: "x" } })).status).toBe(422);
    expect((await bench.call("PUT", `/node/${full.uid}/tag/t1`, { json: { value: "y" } })).status).toBe(200);
  });
});

describe("what the service refuses", () => {
  it("is an array of strings", async () => {
    for (let at = 0; at < 15; at += 1) await bench.fleet.add({ name: `member-${at}`, cluster: "pair.example.net" });
    const json = { cluster: "pair.example.net" };
    const full = await bench.call("PUT", `/node/${one.uid}`, { json });
    expect([full.status, full.json]).toEqual([422, ["cluster: pair.example.net has 16 members"]]);
    await bench.fleet.services.clusters.create({ name: "other" }, "test");
    const other = { cluster: "other.example.net" };
    const agent = await bench.call("PUT", `/node/${two.uid}`, { json: other });
    expect([agent.status, agent.json]).toEqual([422, ["cluster: agents cannot be members of a cluster"]]);
  });
});

describe("GET /node/license", () => {
  it("answers a license as text, for an appliance by default", async () => {
    const answer = await bench.call("GET", "/node/license?name=new-node");
    expect(answer.status).toBe(200);
    expect(answer.headers.get("content-type")).toMatch(/^text\/plain/);
    const { name, type } = peekClaims("holdfast-license+jwt", answer.text);
    expect([name, type]).toEqual(["new-node", "Node"]);
    const agent = await bench.call("GET", "/node/license?name=new-node&type=Agent");
    expect(peekClaims("holdfast-license+jwt", agent.text).type).toBe("Agent");
  });

  it("refuses an order that is not a UUID", async () => {
    const answer = await bench.call("GET", "/node/license?name=ordered&orderID=17");
    expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(/^orderID: /)]]);
  });

  it.each(["", "?name=", "?name=UPPER", "?name=-a", "?name=one", "?name=a&type=Toaster", "?name=a&name=b"])(
    "refuses %s with an array of strings",
    async (query) => {
      const answer = await bench.call("GET", `/node/license${query}`);
      expect(answer.status).toBe(422);
      expect(answer.json).toEqual([expect.stringMatching(/^(name|type): /)]);
    },
  );
});

describe("PUT and DELETE /node/{nodeID}/lock", () => {
  it("locks a node to where it is, or to addresses in their one spelling", async () => {
    const here = await bench.call("PUT", `/node/${one.uid}/lock`, { json: {} });
    expect(here.status).toBe(200);
    expect(here.json).toMatchObject({ lock: { addresses: ["192.0.2.7"] } });
    const addresses = ["192.0.2.1", "2001:DB8::/48", "192.0.2.1/32"];
    const { json } = await bench.call("PUT", `/node/${one.uid}/lock`, { json: { addresses } });
    expect(json).toMatchObject({ lock: { addresses: ["192.0.2.1/32", "2001:db8::/48"] } });
    const off = await bench.call("DELETE", `/node/${one.uid}/lock`);
    expect(off.json).not.toHaveProperty("lock");
  });

  it.each([[[]], [["not an address"]], [["192.0.2.1/24"]], [Array.from({ length: 17 }, (_, at) => `192.0.2.${at}`)]])(
    "refuses %j, naming what is wrong",
    async (addresses) => {
      const { status, json } = await bench.call("PUT", `/node/${one.uid}/lock`, { json: { addresses } });
      expect(status).toBe(422);
      expect(json).toEqual([expect.stringMatching(/^addresses/)]);
    },
  );

  it("needs nodes::manage on this very node, and shows no more than what was written to who may not read it", async () => {
    const elsewhere = await bench.keyFor(["nodes::manage", "nodes::read"], [`tgrn:tg::nodes:node/${two.uid}`]);
    const reader = await bench.keyFor(["nodes::read"], ["*"]);
    for (const key of [elsewhere, reader]) {
      expect((await bench.call("PUT", `/node/${one.uid}/lock`, { key, json: {} })).status).toBe(403);
      expect((await bench.call("DELETE", `/node/${one.uid}/lock`, { key })).status).toBe(403);
    }
    const manager = await bench.keyFor(["nodes::manage"], [`tgrn:tg::nodes:node/${one.uid}`]);
    const { json } = await bench.call("PUT", `/node/${one.uid}/lock`, { key: manager, json: {} });
    expect(json).toEqual({ uid: one.uid, lock: { addresses: ["192.0.2.7"] } });
  });
});

describe("PUT /node/{nodeID}/keys/{keyName}", () => {
  const x = "A".repeat(43);
  const put = (name: string, json: object, key?: string) =>
    bench.call("PUT", `/node/${one.uid}/keys/${name}`, { json, ...(key === undefined ? {} : { key }) });
  const keys = async () => members(members((await bench.call("GET", `/node/${one.uid}`)).json)["keys"]);

  it("keeps a public key as it was written, beside those of the node", async () => {
    const before = await keys();
    const jwk = { crv: "X25519", kid: "k", kty: "EC", x: `${x}=` };
    expect((await put("tg-apigw-wg", jwk)).status).toBe(200);
    expect(await keys()).toEqual({ ...before, "tg-apigw-wg": `${x}=` });
    const changer = await bench.keyFor(["nodes::configure:apigw"], [`tgrn:tg::nodes:node/${one.uid}`]);
    expect((await put("tg-apigw-wg", { ...jwk, kty: "OKP", x }, changer)).json).toEqual({
      uid: one.uid,
      keys: { "tg-apigw-wg": x },
    });
    expect(await keys()).toEqual({ ...before, "tg-apigw-wg": x });
    expect((await bench.fleet.node(one.uid))?.clientKeys).toEqual({ "tg-apigw-wg": { ...jwk, kty: "OKP", x } });
    expect((await put("tg-apigw-wg", jwk, await bench.keyFor(["nodes::manage"]))).status).toBe(403);
  });

  it("refuses names of the node's own keys, other keys, and the thirty-third", async () => {
    const jwk = { crv: "X25519", kty: "EC", x };
    for (const name of ["auth", "identity", "overlay", "wireguard"]) {
      expect((await put(name, jwk)).json).toEqual(["keyName: is the name of a key of the node itself"]);
    }
    expect((await put("A", jwk)).json).toEqual([expect.stringMatching(/^keyName: must be/)]);
    for (const [change, line] of [
      [{ crv: "P-256" }, /^crv: /],
      [{ kty: "RSA" }, /^kty: /],
      [{ x: "A" }, /^x: must be 32 bytes/],
      [{ more: "a".repeat(4096) }, /: must not be longer than 4096 as JSON$/],
    ] as const) {
      expect((await put("a", { ...jwk, ...change })).json).toEqual([expect.stringMatching(line)]);
    }
    for (let n = 0; n < 32; n += 1) await put(`k${n}`, jwk);
    expect((await put("more", jwk)).json).toEqual(["keyName: cannot add a key: the limit of 32 keys is reached"]);
    expect((await put("k0", jwk)).status).toBe(200);
  });
});
