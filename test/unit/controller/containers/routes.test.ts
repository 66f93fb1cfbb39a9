import { beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { readExec } from "../../../../src/protocol/sections/exec/read.ts";
import { ApiBench, items, members } from "../../../support/control-plane/api-bench.ts";

const A = "6f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d01";
const B = "5f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d02";
const NOBODY = "00000000-0000-4000-8000-000000000000";
const RECORD = {
  id: A,
  name: "edge-api",
  execType: "service",
  image: { repository: "acme.example/team/edge-api", tag: "1.4.2", later: 1 },
  stopTime: "20",
  description: "",
  later: { x: 1 },
};
const OTHER = { ...RECORD, id: B, name: "other" };
/** Each part by the last word of its path, as it is sent and answered. */
const PARTS = {
  capability: { capabilities: { addCaps: ["CAP_NET_ADMIN"], dropCaps: ["NET_RAW"] } },
  healthcheck: { healthCheck: { command: "true", interval: 5 } },
  interface: { interfaces: [{ uid: "i1", name: "tun0", dest: "eth1" }] },
  limit: { limits: { cpuMax: 40, memMax: 512, limits: [{ uid: "u", type: "NOFILE", soft: 1, hard: 2 }] } },
  logging: { logging: { maxLogFileSize: 10, numFiles: 5 } },
  mount: { mounts: [{ uid: "m1", mountType: "BIND", source: "/srv", dest: "/data" }] },
  "port-mapping": {
    portMappings: [{ uid: "p1", protocol: "TCP", iface: "eth0", hostPort: "80", containerPort: 8080 }],
  },
  variable: {
    variables: [
      { name: "TOKEN", value: "hush" },
      { name: "EMPTY", value: "" },
    ],
  },
  "virtual-network": { virtualNetworks: [{ uid: "v", network: "core", ip: "172.21.0.10", allowOutbound: true }] },
  vrf: { vrf: { name: "red" } },
} as const;
const CONFIG = Object.assign({}, ...Object.values(PARTS)) as Record<string, unknown>;

let bench: ApiBench;
let uid: string;
let base: string;

beforeEach(async () => {
  bench = await ApiBench.create();
  uid = (await bench.fleet.add({ name: "appliance", config: {} })).uid;
  base = `/v2/node/${uid}/exec`;
});

const stored = async () => (await bench.fleet.node(uid))?.config.exec;
const containers = async () => items((await stored())?.["commands"]);
const create = (json: unknown) => bench.call("POST", `${base}/container`, { json });
const put = (path: string, json: unknown) => bench.call("PUT", `${base}/${path}`, { json });
const get = async (path: string, key?: string) =>
  (await bench.call("GET", `${base}/${path}`, key === undefined ? {} : { key })).json;

describe("containers", () => {
  it("are added under the id that the client made, listed, replaced and removed", async () => {
    expect(await get("container")).toEqual([]);
    const added = await create({ ...RECORD, version: 9, nodeUid: "x", namespace: "y" });
    const shown = { ...RECORD, version: 0, nodeUid: uid, namespace: "exec" };
    expect([added.status, added.json]).toEqual([200, shown]);
    expect(await stored()).toEqual({ commands: [{ ...RECORD, version: 0 }] });
    expect(await get("container")).toEqual([shown]);
    expect(await get(`container/${A.toUpperCase()}`)).toEqual(shown);
    const { stopTime: _unset, ...rest } = RECORD;
    const changed = await put(`container/${A}`, { ...rest, enabled: false });
    expect([changed.status, changed.json]).toEqual([
      200,
      { ...rest, enabled: false, version: 1, nodeUid: uid, namespace: "exec" },
    ]);
    const removed = await bench.call("DELETE", `${base}/container/${A}`);
    expect([removed.status, removed.json]).toEqual([200, {}]);
    expect(await get("container")).toEqual([]);
    expect(await bench.fleet.changes()).toEqual([
      "admin: Configuration of exec changed: container edge-api added",
      "admin: Configuration of exec changed: container edge-api changed",
      "admin: Configuration of exec changed: container edge-api removed",
    ]);
  });

  it("get an id when the client made none", async () => {
    const { id: _none, ...rest } = RECORD;
    for (const [at, id] of [undefined, null, ""].entries())
      expect(z.object({ id: z.uuid() }).parse((await create({ ...rest, name: `c${at}`, id })).json).id).not.toBe(A);
  });

  it.each(["", null])("come back letter for letter with fields that are not set, as %j", async (unset) => {
    const fields =
      "description enabled command hostname user privileged useInit stopTime requireConnectivity saveOutput schedule dns ip";
    const record = { ...RECORD, ...Object.fromEntries(fields.split(" ").map((name) => [name, unset])) };
    const shown = { ...record, version: 0, nodeUid: uid, namespace: "exec" };
    expect((await create(record)).json).toEqual(shown);
    expect(await get(`container/${A}`)).toEqual(shown);
    const replaced = await put(`container/${A}`, { ...record, later: unset, id: unset });
    expect(replaced.json).toEqual({ ...shown, later: unset, version: 1 });
    const parts = {
      capabilities: { addCaps: unset, dropCaps: ["MKNOD"] },
      healthCheck: { command: "true", interval: unset },
      mounts: [{ uid: unset, mountType: "bind", source: "/srv", dest: "/data" }],
      variables: [],
    };
    expect((await put(`container/${A}/config`, { ...parts, vrf: unset })).json).toEqual(parts);
    expect(await get(`container/${A}/healthcheck`)).toEqual(parts.healthCheck);
    const { config, rejected, notices } = readExec(await stored());
    expect([rejected, notices]).toEqual([[], []]);
    expect(config.containers).toMatchObject([{ enabled: true, stopTimeSeconds: 30 }]);
    expect((await create({ ...OTHER, image: unset })).json).toEqual(["image: is required"]);
  });

  it("keep their parts when the record is replaced, and the record when the parts are", async () => {
    await create({ ...RECORD, vrf: { name: "blue" } });
    expect(await get(`container/${A}/vrf`)).toEqual({ name: "blue" });
    expect((await put(`container/${A}/config`, CONFIG)).status).toBe(200);
    await put(`container/${A}`, { ...RECORD, description: "changed" });
    expect(await containers()).toEqual([{ ...RECORD, description: "changed", ...CONFIG, version: 2 }]);
    expect(await get(`container/${A}`)).toEqual({
      ...RECORD,
      description: "changed",
      version: 2,
      nodeUid: uid,
      namespace: "exec",
    });
    await put(`container/${A}`, { ...RECORD, description: "changed" });
    expect((await containers())[0]?.["version"]).toBe(2);
    await put(`container/${A}/config`, {});
    expect(await containers()).toEqual([{ ...RECORD, description: "changed", variables: [], version: 3 }]);
  });

  it("are read by nodes as they were written", async () => {
    await create(RECORD);
    expect(readExec(await stored()).config.containers).toMatchObject([{ id: A, isExtended: false }]);
    await put(`container/${A}/config`, {});
    expect(readExec(await stored()).config.containers).toMatchObject([{ id: A, isExtended: true }]);
    await put(`container/${A}/config`, CONFIG);
    const { config, rejected, notices } = readExec(await stored());
    expect([rejected, notices]).toEqual([[], []]);
    expect(config.containers).toMatchObject([
      {
        stopTimeSeconds: 20,
        vrf: "red",
        portMappings: [{ protocol: "tcp", hostPort: 80 }],
        mounts: [{ kind: "bind" }],
      },
    ]);
  });

  it("that do not exist are not found", async () => {
    await create(RECORD);
    for (const id of [NOBODY, "any", "__proto__", "x".repeat(200)]) {
      const parts = [...Object.keys(PARTS), "volume"].map((word) => `${id}/${word}`);
      for (const path of [id, ...parts]) {
        expect((await bench.call("GET", `${base}/container/${path}`)).status).toBe(404);
      }
      expect((await put(`container/${id}`, RECORD)).status).toBe(404);
      expect((await put(`container/${id}/config`, {})).status).toBe(404);
      expect((await bench.call("DELETE", `${base}/container/${id}`)).status).toBe(404);
    }
    const elsewhere = `/v2/node/${NOBODY}/exec`;
    expect((await bench.call("GET", `${elsewhere}/container`)).status).toBe(404);
    expect((await bench.call("POST", `${elsewhere}/volume`, { json: { name: "a" } })).status).toBe(404);
    expect(await containers()).toHaveLength(1);
  });

  it("with wrong fields are refused with a line for each, and nothing changes", async () => {
    await create(RECORD);
    const before = await stored();
    const wrong: readonly (readonly [object, readonly string[]])[] = [
      [{ id: "x" }, ["id: must be a UUID"]],
      [
        { name: "../x", image: { repository: "A B" }, execType: "cron" },
        [
          "name: must be 1..63 letters, digits, dots, dashes and underscores, the first a letter or a digit",
          "execType: must be one of service, recurring, onDemand",
          "image.repository: must be a repository such as example.net/team/app, without tag",
          "image.tag: is required",
        ],
      ],
      [{ name: "tg-ping" }, ["name: tg-ping is a trigger event of the node already"]],
      [{ execType: "recurring" }, [expect.stringMatching(/^schedule: is required/) as string]],
      [{ execType: "recurring", schedule: "soon" }, [expect.stringMatching(/^schedule: must be rate/) as string]],
      [{ command: "'" }, ["command: has a quote that is never closed, or no word"]],
      [
        { mounts: [{}] },
        ["mounts.0.mountType: is required", "mounts.0.source: is required", "mounts.0.dest: is required"],
      ],
    ];
    for (const [change, lines] of wrong) {
      const added = await create({ ...OTHER, ...change });
      expect([added.status, added.json]).toEqual([422, lines]);
      const replaced = await put(`container/${A}`, { ...RECORD, ...change });
      expect([replaced.status, replaced.json]).toEqual([422, lines]);
    }
    expect((await create([])).json).toEqual(["body: must be an object"]);
    expect((await put(`container/${A}`, OTHER)).json).toEqual([`id: must be ${A}, or absent`]);
    expect(await stored()).toEqual(before);
  });

  it("that collide with another are refused with its id, whichever comes first", async () => {
    await create(RECORD);
    const again = await create({ ...RECORD, id: A.toUpperCase(), name: "x" });
    expect([again.status, again.json]).toEqual([422, [`id: container ${A.toUpperCase()} already exists`]]);
    const named = await create({ ...OTHER, name: "EDGE-API" });
    expect([named.status, named.json]).toEqual([422, [expect.stringMatching(`^name: .*${A}`)]]);
    const takeover = await create({ ...OTHER, hostname: "Edge-api" });
    expect([takeover.status, takeover.json]).toEqual([422, [expect.stringMatching(`^hostname: .*${A}`)]]);
    await create(OTHER);
    await put(`container/${A}/config`, CONFIG);
    const taken = await put(`container/${B}/config`, PARTS["port-mapping"]);
    expect([taken.status, taken.json]).toEqual([422, [expect.stringContaining(A)]]);
    expect(await get(`container/${B}/port-mapping`)).toEqual([]);
    expect((await put(`container/${A}/config`, CONFIG)).status).toBe(200);
    await put(`container/${A}`, { ...RECORD, enabled: false });
    expect((await put(`container/${B}/config`, PARTS["port-mapping"])).status).toBe(200);
    expect((await put(`container/${A}`, RECORD)).status).toBe(422);
  });

  it("are audited with what gives them more than others have", async () => {
    await create({ ...RECORD, privileged: true, saveOutput: true, capabilities: { addCaps: ["SYS_ADMIN"] } });
    await put(`container/${A}/config`, PARTS.variable);
    expect(await bench.fleet.changes()).toEqual([
      "admin: Configuration of exec changed: container edge-api added (privileged; with SYS_ADMIN; output saved)",
      "admin: Configuration of exec changed: container edge-api configured (privileged; output saved)",
    ]);
    expect(JSON.stringify([await bench.fleet.changes(), bench.logged])).not.toContain("hush");
  });
});

describe("the parts of a container", () => {
  beforeEach(async () => {
    await create(RECORD);
  });

  it.each(Object.entries(PARTS))("%s answers what was sent, and nothing once it is unset", async (word, part) => {
    const [value] = Object.values(part) as [unknown];
    const nothing = Array.isArray(value) ? [] : {};
    expect(await get(`container/${A}/${word}`)).toEqual(nothing);
    const answer = await put(`container/${A}/config`, CONFIG);
    expect([answer.status, answer.json]).toEqual([200, CONFIG]);
    expect(await get(`container/${A}/${word}`)).toEqual(value);
    const name = Object.keys(part)[0] ?? "";
    for (const unset of [null, {}, []]) {
      expect((await put(`container/${A}/config`, { ...CONFIG, [name]: unset })).status).toBe(200);
      expect(await get(`container/${A}/${word}`)).toEqual(nothing);
    }
    const { [name]: _gone, ...others } = CONFIG;
    await put(`container/${A}/config`, CONFIG);
    await put(`container/${A}/config`, others);
    expect(await get(`container/${A}/${word}`)).toEqual(nothing);
  });

  it("are taken in other capitals, and nothing else beside them", async () => {
    const sent = { VRF: { name: "red" }, healthcheck: { command: "true" }, name: "stolen", privileged: true };
    const answer = await put(`container/${A}/config`, sent);
    expect(answer.json).toEqual({ variables: [], vrf: { name: "red" }, healthCheck: { command: "true" } });
    expect(await get(`container/${A}`)).toMatchObject({ name: "edge-api" });
    expect((await containers())[0]).not.toHaveProperty("privileged");
  });

  it("that are wrong are refused with a line for each, and nothing changes", async () => {
    await put(`container/${A}/config`, CONFIG);
    const before = await stored();
    const wrong = {
      capabilities: { addCaps: ["ALL", "FLY"] },
      limits: { memMax: "1", limits: [{ type: "files", soft: -2, hard: 1 }] },
      mounts: [{ mountType: "bind", source: "srv", dest: "/" }],
      portMappings: [{ protocol: "", iface: "eth0", hostPort: 0, containerPort: "70000" }],
      variables: [{ name: "A=B", value: 7 }],
      vrf: { name: "a b" },
    };
    const answer = await put(`container/${A}/config`, wrong);
    expect([answer.status, answer.json]).toEqual([
      422,
      [
        "capabilities.addCaps.0: must be the name of a capability",
        "capabilities.addCaps.1: must be the name of a capability",
        "limits.memMax: is text, and must be a number, 6..67108864, or 0 for none",
        expect.stringMatching(/^limits\.limits\.0\.type: must be one of core, cpu/) as string,
        "limits.limits.0.soft: must be a whole number, -1..9007199254740991",
        "mounts.0.dest: must not be the root",
        "mounts.0.source: must be an absolute path, without .. and control characters",
        "portMappings.0.protocol: is required",
        "portMappings.0.hostPort: must be a whole number, 1..65535",
        "portMappings.0.containerPort: must be a whole number, 1..65535",
        "variables.0.name: must be 1..256 characters, without = and control characters",
        "variables.0.value: must be text",
        "vrf.name: must be 1..15 letters, digits, dots, dashes and underscores",
      ],
    ]);
    const between = await put(`container/${A}/config`, {
      limits: { memMax: 64, memHigh: 65, limits: [{ type: "core", soft: 2, hard: 1 }] },
      variables: [
        { name: "A", value: "hush" },
        { name: "A", value: "" },
      ],
    });
    expect([between.status, z.array(z.string()).parse(between.json).sort()]).toEqual([
      422,
      [
        "limits.limits.0.soft: must not be above hard",
        "limits.memHigh: must not be above memMax",
        "variables.1.name: A is there already",
      ],
    ]);
    expect(await stored()).toEqual(before);
  });

  it("tell the values of variables to who may read them, and nobody else", async () => {
    await put(`container/${A}/config`, CONFIG);
    const [reader, viewer] = [await bench.keyFor(["node-exec::read"]), await bench.keyFor(["nodes::read"])];
    expect(await get(`container/${A}/variable`, reader)).toEqual(PARTS.variable.variables);
    const shown = await bench.call("GET", `/node/${uid}`, { key: viewer });
    expect(shown.text).toContain("TOKEN");
    const { text: all } = await bench.call("GET", `${base}/container`, { key: reader });
    for (const text of [shown.text, all, ...bench.logged]) expect(text).not.toContain("hush");
  });

  it("mirror whether a volume is encrypted, and do not keep what a client says of it", async () => {
    await bench.call("POST", `${base}/volume`, { json: { name: "safe", encrypted: true } });
    const mounts = [
      { mountType: "volume", source: "safe", dest: "/a" },
      { mountType: "volume", source: "unknown", dest: "/b" },
    ];
    await put(`container/${A}/config`, { mounts: mounts.map((mount) => Object.assign({ encrypted: false }, mount)) });
    expect((await containers())[0]?.["mounts"]).toEqual(mounts);
    expect(await get(`container/${A}/mount`)).toEqual([{ ...mounts[0], encrypted: true }, mounts[1]]);
    expect(await get(`container/${A}/volume`)).toEqual([{ name: "safe", encrypted: true }]);
  });
});

describe("volumes and caps", () => {
  it("are added and removed by name", async () => {
    const volume = { name: "data", encrypted: false, location: "shared/data", later: 1 };
    const added = await bench.call("POST", `${base}/volume`, { json: volume });
    expect([added.status, added.json]).toEqual([200, volume]);
    expect(await get("volume")).toEqual([volume]);
    for (const clash of [
      { name: "data" },
      { name: "z", location: "shared//data" },
      { name: "a", location: "shared/data" },
    ]) {
      const answer = await bench.call("POST", `${base}/volume`, { json: clash });
      expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(/^(name|location): /)]]);
    }
    const wrong = await bench.call("POST", `${base}/volume`, { json: { name: "a/b", location: "../x", encrypted: 1 } });
    expect([wrong.status, z.array(z.string()).parse(wrong.json).length]).toEqual([422, 3]);
    await create({ ...RECORD, mounts: [{ mountType: "volume", source: "data", dest: "/data" }] });
    const mounted = await bench.call("DELETE", `${base}/volume/data`);
    expect([mounted.status, mounted.json]).toEqual([422, [expect.stringContaining(`container ${RECORD.name}`)]]);
    await bench.call("DELETE", `${base}/container/${A}`);
    expect((await bench.call("DELETE", `${base}/volume/data`)).json).toEqual({});
    expect((await bench.call("DELETE", `${base}/volume/data`)).status).toBe(404);
    expect(await get("volume")).toEqual([]);
  });

  it("are written as they are, and changed in nothing", async () => {
    const volume = { name: "data", location: "shared/data" };
    await bench.call("POST", `${base}/volume`, { json: volume });
    await bench.fleet.forget();
    for (const body of [volume, { encrypted: false }, { ...volume, encrypted: false }, {}]) {
      const answer = await put("volume/data", body);
      expect([answer.status, answer.json]).toEqual([200, volume]);
    }
    const hint = "cannot be changed; remove the volume, with its contents, and add it again";
    const refused = await put("volume/data", { ...volume, encrypted: true, location: "x" });
    expect([refused.status, refused.json]).toEqual([422, [`encrypted: ${hint}`, `location: ${hint}`]]);
    expect((await put("volume/data", { name: "other" })).json).toEqual([`name: ${hint}`]);
    expect((await put("volume/none", volume)).status).toBe(404);
    expect((await bench.call("GET", `${base}/volume/none`)).status).toBe(404);
    expect([await get("volume"), await bench.fleet.changes()]).toEqual([[volume], []]);
  });

  it("hold for all containers, and go with an empty object", async () => {
    expect(await get("limit")).toEqual({});
    const limits = { cpuMax: 250, memMax: 1024, memHigh: 1_048_576, ioRbps: 1_000_000 };
    const answer = await put("limit", limits);
    expect([answer.status, answer.json]).toEqual([200, limits]);
    expect(await get("limit")).toEqual(limits);
    expect((await put("limit", { memMax: 10, memHigh: 11 })).json).toEqual(["memHigh: must not be above memMax"]);
    expect((await put("limit", { cpuMax: "1" })).status).toBe(422);
    expect(await get("limit")).toEqual(limits);
    expect((await put("limit", {})).json).toEqual({});
    expect([await get("limit"), await stored()]).toEqual([{}, {}]);
  });
});

describe("a node that has no containers of its own", () => {
  const calls = (where: string) =>
    [
      ["POST", `${where}/container`, OTHER],
      ["PUT", `${where}/container/${A}`, RECORD],
      ["PUT", `${where}/container/${A}/config`, {}],
      ["DELETE", `${where}/container/${A}`, undefined],
      ["POST", `${where}/volume`, { name: "a" }],
      ["DELETE", `${where}/volume/a`, undefined],
      ["PUT", `${where}/limit`, {}],
    ] as const;

  it("is told where they are: on its cluster", async () => {
    await create(RECORD);
    await bench.fleet.services.clusters.create({ name: "pair" }, "test");
    await bench.fleet.services.nodes.update(uid, { cluster: "pair.example.net" }, "test");
    const before = await stored();
    for (const [method, path, json] of calls(base)) {
      const answer = await bench.call(method, path, json === undefined ? {} : { json });
      expect([answer.status, answer.json]).toEqual([
        422,
        [expect.stringMatching(/member of pair\.example\.net.*configured on the cluster/)],
      ]);
    }
    expect(await stored()).toEqual(before);
    // Until the cluster has the section the member's own is in force.
    expect(await get("container")).toMatchObject([{ id: A }]);
    await bench.fleet.services.config.setClusterSection("pair.example.net", "exec", "test", () => ({
      commands: [OTHER],
      volumes: [{ name: "v" }],
    }));
    expect(await get("container")).toMatchObject([{ id: B, version: 0 }]);
    expect(await get("volume")).toEqual([{ name: "v" }]);
    expect((await bench.call("GET", `${base}/container/${A}`)).status).toBe(404);
  });

  it("is an agent", async () => {
    const agent = (await bench.fleet.add({ name: "laptop", type: "Agent", config: {} })).uid;
    const where = `/v2/node/${agent}/exec`;
    const reads = ["container", `container/${A}`, `container/${A}/vrf`, "volume", "limit"].map(
      (path) => ["GET", `${where}/${path}`, undefined] as const,
    );
    for (const [method, path, json] of [...calls(where), ...reads]) {
      const answer = await bench.call(method, path, json === undefined ? {} : { json });
      expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(/^exec: agents have no /)]]);
    }
    expect(members((await bench.fleet.node(agent))?.config)).toEqual({});
  });
});
