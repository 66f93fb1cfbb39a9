import fc from "fast-check";
import { beforeEach, describe, expect, it } from "vitest";
import type { DocumentApplied } from "../../../../src/protocol/channel/methods.ts";
import { hideSecrets } from "../../../../src/protocol/documents/secrets.ts";
import { sectionSchemas } from "../../../../src/protocol/sections/sections.ts";
import { JsonObject } from "../../../../src/protocol/values/values.ts";
import { validValues } from "../../../support/arbitrary.ts";
import { canonicalAction } from "../../../../src/controller/access/policies/permissions.ts";
import { ApiBench } from "../../../support/control-plane/api-bench.ts";
import { runs } from "../../../support/sample.ts";

let bench: ApiBench;
let uid: string;
let agent: string;

beforeEach(async () => {
  bench = await ApiBench.create();
  uid = (await bench.fleet.add({ name: "appliance", config: {} })).uid;
  agent = (await bench.fleet.add({ name: "laptop", type: "Agent", config: {} })).uid;
});

const SNMP = {
  enabled: true,
  interface: "ens192",
  port: 161,
  engineId: "9b1f04a7c2e",
  username: "nms",
  authProtocol: "SHA",
  authPassphrase: "correct horse",
  privacyProtocol: "AES128",
  privacyPassphrase: "battery staple",
};
const ALERT = {
  enabled: true,
  thresholds: [
    { id: "t1", name: "disk", telemetry: "disk", max: 85, exceededWindow: 5, exceededWindowUnit: "minutes" },
    {
      id: "t0",
      name: "RTT",
      telemetry: "latency",
      max: 500,
      exceededWindow: 5,
      exceededWindowUnit: "hours",
      target: "hq",
    },
  ],
};
const CLUSTER = { enabled: true, host: "192.168.10.2", port: 9000, statusPort: 80, master: false };
const APIGW = {
  enabled: false,
  host: "",
  port: 0,
  cert: "",
  wireguardEndpoint: "wg.example.net",
  wireguardPort: 51_820,
  wireguardEnabled: true,
};

/** Sections that no node applies, each with a body, what is shown of it, and a body that is refused with its line. */
const SECTIONS = [
  {
    section: "snmp",
    path: "snmp",
    isForAgents: true,
    body: SNMP,
    shown: { ...SNMP, authPassphrase: "", privacyPassphrase: "" },
    other: { enabled: false },
    bad: [{ ...SNMP, authPassphrase: "short77" }, "snmp.authPassphrase: must have at least 8 characters"],
  },
  {
    section: "snmp",
    path: "config/snmp",
    isForAgents: true,
    body: { ...SNMP, interface: "lo" },
    shown: { ...SNMP, interface: "lo", authPassphrase: "", privacyPassphrase: "" },
    other: { enabled: false },
    bad: [{ ...SNMP, community: "public" }, "snmp.community: is not a known field"],
  },
  {
    section: "alert",
    path: "config/alert",
    isForAgents: false,
    body: ALERT,
    shown: ALERT,
    other: { enabled: false, thresholds: [] },
    bad: [
      { thresholds: [{ ...ALERT.thresholds[0], telemetry: "load" }] },
      "alert.thresholds.0.telemetry: must be one of cpu, ram, disk, heap, embflows, latency, bandwidthIn, bandwidthOut, tcpResets, vpnFlows",
    ],
  },
  {
    section: "cluster",
    path: "config/cluster",
    isForAgents: false,
    body: CLUSTER,
    shown: CLUSTER,
    other: { enabled: false },
    bad: [{ enabled: true, port: 9000 }, "cluster.host: is required with enabled"],
  },
  {
    section: "apigw",
    path: "config/ztnagw",
    isForAgents: false,
    body: APIGW,
    shown: APIGW,
    other: { enabled: false, wireguardEnabled: false },
    bad: [{ ...APIGW, wireguardPort: 0 }, "apigw.wireguardPort: is required with wireguardEnabled"],
  },
] as const;

describe.each(SECTIONS)("section $section at /$path", ({ section, path, isForAgents, body, shown, other, bad }) => {
  const put = (json: unknown, key?: string) =>
    bench.call("PUT", `/node/${uid}/${path}`, key === undefined ? { json } : { json, key });

  it("stores the whole body and reads it back as it was written, without its secrets", async () => {
    const answer = await put(body);
    expect(answer.status).toBe(200);
    expect(answer.json).toMatchObject({ uid, config: { [section]: shown } });
    expect((await bench.fleet.node(uid))?.config).toEqual({ [section]: body });
    expect((await bench.call("GET", `/node/${uid}`)).json).toMatchObject({ config: { [section]: shown } });
    await put(other);
    const { [section]: stored } = (await bench.fleet.node(uid))?.config ?? {};
    expect(stored).toMatchObject(other);
    expect(stored).not.toMatchObject(body);
  });

  it("says that it is stored and not applied", async () => {
    expect((await put(other)).headers.get("holdfast-warning")).toMatch(`section ${section} is stored but not applied`);
  });

  it("is refused with the path of what is wrong, and nothing changes", async () => {
    await put(other);
    const [wrong, line] = bad;
    const answer = await put(wrong);
    expect([answer.status, answer.json]).toEqual([422, [line]]);
    expect((await bench.fleet.node(uid))?.config).toEqual({ [section]: other });
  });

  it("takes its own permission in every spelling of a policy", async () => {
    const key = await bench.keyFor([`nodes::configure:${section}`], [`tgrn:tg::nodes:node/${uid}`]);
    expect((await put(other, key)).status).toBe(200);
    const refused = await bench.call("PUT", `/node/${agent}/${path}`, { json: other, key });
    expect(refused.json).toMatchObject({
      code: "forbidden",
      details: { action: canonicalAction(`nodes::configure:${section}`), resource: `tgrn:tg::nodes:node/${agent}` },
    });
  });

  it(isForAgents ? "exists on agents" : "is not supported on agents", async () => {
    const answer = await bench.call("PUT", `/node/${agent}/${path}`, { json: other });
    expect(answer.status).toBe(isForAgents ? 200 : 422);
    if (!isForAgents) expect(answer.json).toEqual([`${section}: agents have no ${section} section`]);
  });

  it("refuses what is no object, too deep, too large or hostile, and changes nothing", async () => {
    const send = (text: string) =>
      bench.call("PUT", `/node/${uid}/${path}`, { body: text, headers: { "content-type": "application/json" } });
    const deep = `{"a":${"[".repeat(24)}${"]".repeat(24)}}`;
    for (const text of ["[]", '"x"', "null", "7", "", deep, '{"a":{"constructor":1}}', '{"a":{"__pr\\u006fto__":1}}']) {
      const answer = await send(text);
      expect(answer.status).toBe(422);
      expect(answer.json).toEqual([expect.stringMatching(new RegExp(`^${section}[:.]`))]);
    }
    expect((await send(JSON.stringify({ a: "x".repeat(4 * 1024 * 1024) }))).status).toBe(413);
    expect((await bench.fleet.node(uid))?.config).toEqual({});
  });

  it("is not found on a node that does not exist", async () => {
    const path2 = `/node/00000000-0000-4000-8000-000000000000/${path}`;
    expect((await bench.call("PUT", path2, { json: other })).status).toBe(404);
  });
});

it.each(["alert", "cluster", "snmp", "apigw"] as const)(
  "whatever a write of %s accepts is read back unchanged",
  async (section) => {
    const schema = sectionSchemas[section] ?? JsonObject;
    const path = SECTIONS.find((one) => one.section === section)?.path ?? "";
    await fc.assert(
      fc.asyncProperty(validValues(schema), async (body) => {
        const { status } = await bench.call("PUT", `/node/${uid}/${path}`, { json: body });
        const stored = (await bench.fleet.node(uid))?.config[section];
        if (status !== 200) {
          expect([status, stored]).toEqual([422, undefined]);
          return;
        }
        expect(stored).toEqual(body);
        const shown = hideSecrets({ [section]: body });
        expect((await bench.call("GET", `/node/${uid}`)).json).toMatchObject({ config: shown });
        await bench.fleet.services.config.setSection(uid, section, "test", () => ({ body: undefined }));
      }),
      { numRuns: runs(100) },
    );
  },
);

describe("the pass phrases of snmp", () => {
  const put = (json: unknown) => bench.call("PUT", `/node/${uid}/snmp`, { json });
  const stored = async () => (await bench.fleet.node(uid))?.config["snmp"];

  it.each([undefined, "", null])("are kept when they are sent as %j", async (unset) => {
    await put(SNMP);
    const { authPassphrase: _auth, privacyPassphrase: _privacy, ...others } = SNMP;
    const secrets = unset === undefined ? {} : { authPassphrase: unset, privacyPassphrase: unset };
    expect((await put({ ...others, ...secrets, port: 1161 })).status).toBe(200);
    expect(await stored()).toEqual({ ...SNMP, port: 1161 });
  });

  it("are required once", async () => {
    const answer = await put({ ...SNMP, authPassphrase: "", privacyPassphrase: null });
    expect([answer.status, answer.json]).toEqual([
      422,
      ["snmp.authPassphrase: is required with enabled", "snmp.privacyPassphrase: is required with enabled"],
    ]);
    expect(await stored()).toBeUndefined();
  });

  it("are in no answer, event, audit or log, whoever asks", async () => {
    await put(SNMP);
    await put({ ...SNMP, authPassphrase: "short77" });
    await put({ ...SNMP, privacyPassphrase: ["battery staple"] });
    const readers = [
      await bench.keyFor(["*"]),
      await bench.keyFor(["nodes::read"]),
      await bench.keyFor(["nodes::read", "nodes::configure:snmp"]),
    ];
    const query = "projection[0][0]=config&projection[0][1]=snmp";
    for (const key of readers) {
      for (const path of [
        `/node/${uid}`,
        "/node/by-fqdn/appliance.example.net",
        `/node?${query}`,
        "/v2/event",
        "/v2/audit",
      ]) {
        expect((await bench.call("GET", path, { key })).text).not.toMatch(/correct horse|battery staple|short77/);
      }
    }
    expect(
      (await bench.call("GET", `/node/${uid}`, { key: await bench.keyFor(["nodes::configure:snmp"]) })).status,
    ).toBe(403);
    expect(bench.logged.join("")).not.toMatch(/correct horse|battery staple|short77/);
  });
});

describe("the role of a cluster's member", () => {
  const put = (json: unknown) => bench.call("PUT", `/node/${uid}/config/cluster`, { json });
  const stored = async () => (await bench.fleet.node(uid))?.config["cluster"];
  const role = { master: true, versionCounter: 1, updateTime: expect.any(Number) as number };

  it.each([
    [{ master: true }, "cluster.master"],
    [{ ...CLUSTER, versionCounter: 7 }, "cluster.versionCounter"],
    [{ ...CLUSTER, masterVersion: 7 }, "cluster.masterVersion"],
    [{ ...CLUSTER, updateTime: 7 }, "cluster.updateTime"],
  ])("cannot be written as %j", async (body, path) => {
    const answer = await put(body);
    expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(`^${path}: cannot be written: `)]]);
    expect(await stored()).toBeUndefined();
  });

  it("is kept by writes of the settings, also by those that repeat it, and by their removal", async () => {
    await bench.fleet.services.clusters.create({ name: "pair" }, "test");
    await bench.call("PUT", `/node/${uid}`, { json: { cluster: "pair.example.net" } });
    await bench.call("PUT", `/cluster/pair.example.net/active/${uid}`);
    expect(await stored()).toEqual(role);
    expect((await put(CLUSTER)).status).toBe(200);
    expect(await stored()).toEqual({ ...CLUSTER, ...role });
    expect((await put({ ...(await stored()), enabled: false })).status).toBe(200);
    expect(await stored()).toEqual({ ...CLUSTER, ...role, enabled: false });
    expect((await bench.call("DELETE", `/node/${uid}/config/cluster`)).status).toBe(200);
    expect(await stored()).toEqual(role);
  });
});

describe("a port of the endpoints for remote access", () => {
  const wireguard = { wireguardEnabled: true, wireguardEndpoint: "wg.example.net", wireguardPort: 8443 };
  const https = { enabled: true, host: "gw.example.net", port: 8443 };
  const gateway = { enabled: true, type: "public", host: "gw.example.net", port: 8443, udpEnabled: true };
  const connector = {
    id: "0d8c5a52-57a6-4a55-9d0b-6a1d5d0f9c01",
    protocol: "tcp",
    port: 8443,
    node: "b",
    service: "web",
  };
  const put = (json: unknown) => bench.call("PUT", `/node/${uid}/config/ztnagw`, { json });

  it.each([
    [
      "gateway",
      "config/gateway",
      gateway,
      { ...https, ...wireguard },
      [
        "apigw.port: tcp 8443 is a port of gateway already",
        "apigw.wireguardPort: udp 8443 is a port of gateway already",
      ],
    ],
    ["snmp", "snmp", { ...SNMP, port: 8443 }, wireguard, ["apigw.wireguardPort: udp 8443 is a port of snmp already"]],
    [
      "cluster",
      "config/cluster",
      { ...CLUSTER, port: 8443 },
      https,
      ["apigw.port: tcp 8443 is a port of cluster already"],
    ],
    [
      "connectors",
      "config/connectors",
      { connectors: [connector] },
      https,
      ["apigw.port: tcp 8443 is a port of connectors.connectors.0 already"],
    ],
  ])("is none of %s", async (_, path, other, body, lines) => {
    expect((await put(body)).status).toBe(200);
    expect((await bench.call("PUT", `/node/${uid}/${path}`, { json: other })).status).toBe(200);
    const answer = await put(body);
    expect([answer.status, answer.json]).toEqual([422, lines]);
    expect((await put({ ...body, enabled: false, wireguardEnabled: false })).status).toBe(200);
  });
});

it("a threshold that never fires is stored with a warning", async () => {
  const thresholds = [{ ...ALERT.thresholds[0], max: 120 }];
  const answer = await bench.call("PUT", `/node/${uid}/config/alert`, { json: { thresholds } });
  expect(answer.status).toBe(200);
  expect(answer.headers.get("holdfast-warning")).toMatch(
    "alert.thresholds.0.max: 120 is outside of a percentage, and never fires",
  );
});

describe("a section that the service refuses", () => {
  it("is answered with its lines as they are", async () => {
    // Two items that are within the limit of a body each, and not together within that of a section.
    const later = "x".repeat(3 * 1024 * 1024);
    const create = (name: string) => {
      const json = { name, protocol: "tcp", host: "127.0.0.1", port: 80, later };
      return bench.call("POST", `/v2/node/${uid}/config/services`, { json });
    };
    expect((await create("web")).status).toBe(200);
    const answer = await create("other");
    expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(/^services: /)]]);
  });
});

describe("removing a section", () => {
  it.each(SECTIONS.filter(({ section }) => section !== "snmp"))(
    "$section leaves the others",
    async ({ path, other }) => {
      await bench.call("PUT", `/node/${uid}/${path}`, { json: other });
      await bench.call("PUT", `/node/${uid}/snmp`, { json: { enabled: false } });
      const answer = await bench.call("DELETE", `/node/${uid}/${path}`);
      expect(answer.json).toEqual({});
      expect((await bench.fleet.node(uid))?.config).toEqual({ snmp: { enabled: false } });
    },
  );

  it("is refused where an agent has none", async () => {
    expect((await bench.call("DELETE", `/node/${agent}/config/network`)).json).toEqual([
      "network: agents have no network section",
    ]);
  });
});

describe("what a change answers", () => {
  it("is only the part written to a caller who may not read the node", async () => {
    await bench.fleet.services.config.setSection(uid, "snmp", "test", () => ({ body: { enabled: false } }));
    const key = await bench.keyFor(["nodes::configure:gateway", "nodes::manage", "nodes::tag"]);
    const call = (method: string, path: string, json?: unknown) =>
      bench.call(method, `/node/${uid}${path}`, json === undefined ? { key } : { key, json });
    expect((await call("GET", "")).status).toBe(403);
    const gateway = { enabled: false };
    expect((await call("PUT", "/config/gateway", gateway)).json).toEqual({ uid, config: { gateway } });
    expect((await call("DELETE", "/config/gateway")).json).toEqual({});
    expect((await call("PUT", "", { state: "INACTIVE" })).json).toEqual({ uid, state: "INACTIVE" });
    expect((await call("PUT", "/tag/site", { value: "rome" })).json).toEqual({ uid, tags: { site: "rome" } });
    expect((await call("DELETE", "/tag/site")).json).toEqual({});
    const lifecycleState = "maintenance";
    const answer = await bench.call("PUT", `/v2/node/${uid}/lifecycle-state`, { key, json: { lifecycleState } });
    expect(answer.json).toEqual({ uid, lifecycleState });
  });

  it("holds no secret, and what was shown can be sent back without losing one", async () => {
    const put = await bench.call("PUT", `/node/${uid}/snmp`, { json: SNMP });
    const shown = { ...SNMP, authPassphrase: "", privacyPassphrase: "" };
    expect(put.json).toMatchObject({ config: { snmp: shown } });
    const key = await bench.keyFor(["nodes::configure:snmp"]);
    const part = await bench.call("PUT", `/node/${uid}/snmp`, { json: shown, key });
    expect(part.json).toEqual({ uid, config: { snmp: shown } });
    expect((await bench.fleet.node(uid))?.config).toEqual({ snmp: SNMP });
    const query = "projection[0][0]=config&projection[0][1]=snmp&projection[0][2]=authPassphrase";
    for (const path of [`/node/${uid}`, "/node/by-fqdn/appliance.example.net", `/node?${query}`]) {
      expect((await bench.call("GET", path)).text).not.toMatch(/correct|battery/);
    }
  });
});

it("a section that the node cannot apply is answered with a warning, and one that it applies without", async () => {
  const put = async () =>
    (await bench.call("PUT", `/node/${uid}/config/network`, { json: {} })).headers.get("holdfast-warning");
  expect(await put()).toBeNull();
  const report: DocumentApplied = {
    name: "node",
    version: 1,
    at: 1,
    durationMs: 1,
    outcome: "partial",
    sections: { network: { state: "unsupported", issues: [], steps: 0 } },
  };
  await bench.fleet.store.documents.setApplied(uid, report);
  expect(await put()).toMatch("the node reports it as unsupported");
});

describe("the warning of a write", () => {
  const warningOf = async (method: string, path: string, json: unknown) =>
    (await bench.call(method, path, { json })).headers.get("holdfast-warning");
  const web = { name: "web", protocol: "tcp", host: "127.0.0.1", port: 80 };

  it("names a value that the node ignores, of the item that is written", async () => {
    const base = `/v2/node/${uid}/config/services`;
    const ignored = { ...web, sourceInterface: "eth0", sourceFromClusterIP: true };
    expect(await warningOf("POST", base, ignored)).toMatch(
      /^services\.items\.[-0-9a-f]+\.sourceFromClusterIP: ignored: the node is in no cluster$/,
    );
    expect(await warningOf("POST", base, { ...web, name: "other" })).toBeNull();
    const whole = { services: [web, { ...ignored, name: "second" }] };
    await bench.call("DELETE", `/node/${uid}/config/services`);
    expect(await warningOf("PUT", `/node/${uid}/config/services`, whole)).toMatch(/^services\.services\.1\.source/);
  });

  it("names what agents do not have", async () => {
    const json = { node: "other", service: "web", protocol: "tcp", port: 8080, sourceBlock: "192.0.2.0/24" };
    expect(await warningOf("POST", `/v2/node/${agent}/config/connectors`, json)).toMatch(/sourceBlock/);
  });

  it("is bounded, and of visible ASCII", async () => {
    const many = Array.from({ length: 40 }, (_, at) => ({
      ...web,
      name: `s${at}`,
      sourceInterface: "eth0",
      sourceFromClusterIP: true,
    }));
    const warning = await warningOf("PUT", `/node/${uid}/config/services`, { services: many });
    expect(warning).toMatch(/; and 24 more$/);
    expect(warning).toMatch(/^[ -~]{1,4000}$/);
  });

  it("names a lock that withholds the section", async () => {
    const { nodes } = bench.fleet.services;
    await nodes.change(uid, "test", () => ({
      change: { lockedTo: ["192.0.2.1"], unauthorizedIp: "198.51.100.7" },
      message: "x",
    }));
    expect(await warningOf("PUT", `/node/${uid}/config/services`, { services: [web] })).toMatch(
      /198\.51\.100\.7, outside its lock$/,
    );
    expect(await warningOf("PUT", `/node/${uid}/config/network`, {})).toBeNull();
  });
});
