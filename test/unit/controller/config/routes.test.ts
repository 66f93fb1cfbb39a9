import { beforeEach, describe, expect, it } from "vitest";
import type { DocumentApplied } from "../../../../src/protocol/channel/methods.ts";
import { ApiBench } from "../../../support/control-plane/api-bench.ts";

let bench: ApiBench;
let uid: string;
let agent: string;

beforeEach(async () => {
  bench = await ApiBench.create();
  uid = (await bench.fleet.add({ name: "appliance", config: {} })).uid;
  agent = (await bench.fleet.add({ name: "laptop", type: "Agent", config: {} })).uid;
});

/** Sections that take any object; those with a schema of their own have tests of their own. */
const SECTIONS = [
  ["snmp", "snmp", true],
  ["alert", "config/alert", false],
  ["cluster", "config/cluster", false],
  ["apigw", "config/ztnagw", false],
] as const;

describe.each(SECTIONS)("section %s at /%s", (section, path, isForAgents) => {
  it("stores the whole body", async () => {
    const body = { enabled: true, items: { "a.b": [1, null] } };
    const answer = await bench.call("PUT", `/node/${uid}/${path}`, { json: body });
    expect(answer.status).toBe(200);
    expect(answer.json).toMatchObject({ uid, config: { [section]: body } });
    const replaced = await bench.call("PUT", `/node/${uid}/${path}`, { json: { other: 1 } });
    expect(replaced.json).toMatchObject({ config: { [section]: { other: 1 } } });
    expect((await bench.fleet.node(uid))?.config).toEqual({ [section]: { other: 1 } });
  });

  it("says that it is stored and not applied", async () => {
    const answer = await bench.call("PUT", `/node/${uid}/${path}`, { json: {} });
    expect(answer.headers.get("holdfast-warning")).toMatch(`section ${section} is stored`);
  });

  it("takes its own permission in every spelling of a policy", async () => {
    const key = await bench.keyFor([`nodes::configure:${section}`], [`tgrn:tg::nodes:node/${uid}`]);
    expect((await bench.call("PUT", `/node/${uid}/${path}`, { json: {}, key })).status).toBe(200);
    const refused = await bench.call("PUT", `/node/${agent}/${path}`, { json: {}, key });
    expect(refused.json).toMatchObject({
      code: "forbidden",
      details: { action: `nodes::configure:${section}`, resource: `tgrn:tg::nodes:node/${agent}` },
    });
  });

  it(isForAgents ? "exists on agents" : "is not supported on agents", async () => {
    const answer = await bench.call("PUT", `/node/${agent}/${path}`, { json: {} });
    expect(answer.status).toBe(isForAgents ? 200 : 422);
    if (!isForAgents) expect(answer.json).toEqual([`${section}: agents have no ${section} section`]);
  });

  it("refuses what is no object, too deep, too large or hostile, and changes nothing", async () => {
    const put = (body: string) =>
      bench.call("PUT", `/node/${uid}/${path}`, { body, headers: { "content-type": "application/json" } });
    const deep = `{"a":${"[".repeat(24)}${"]".repeat(24)}}`;
    for (const body of ["[]", '"x"', "null", "7", "", deep, '{"a":{"constructor":1}}', '{"a":{"__pr\\u006fto__":1}}']) {
      const answer = await put(body);
      expect(answer.status).toBe(422);
      expect(answer.json).toEqual([expect.stringMatching(new RegExp(`^${section}[:.]`))]);
    }
    expect((await put(`{"a":${"[".repeat(23)}${"]".repeat(23)}}`)).status).toBe(200);
    expect((await put(JSON.stringify({ a: "x".repeat(4 * 1024 * 1024) }))).status).toBe(413);
    expect((await put(JSON.stringify({ a: "x".repeat(2 * 1024 * 1024) }))).status).toBe(200);
  });

  it("is not found on a node that does not exist", async () => {
    const path2 = `/node/00000000-0000-4000-8000-000000000000/${path}`;
    expect((await bench.call("PUT", path2, { json: {} })).status).toBe(404);
  });
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
  it.each(SECTIONS.filter(([section]) => section !== "snmp"))("%s leaves the others", async (section, path) => {
    await bench.call("PUT", `/node/${uid}/${path}`, { json: { a: 1 } });
    await bench.call("PUT", `/node/${uid}/snmp`, { json: { b: 1 } });
    const answer = await bench.call("DELETE", `/node/${uid}/${path}`);
    expect(answer.json).toEqual({});
    expect((await bench.fleet.node(uid))?.config).toEqual({ snmp: { b: 1 } });
    expect(section).not.toBe("snmp");
  });

  it("is refused where an agent has none", async () => {
    expect((await bench.call("DELETE", `/node/${agent}/config/network`)).json).toEqual([
      "network: agents have no network section",
    ]);
  });
});

describe("what a change answers", () => {
  it("is only the part written to a caller who may not read the node", async () => {
    await bench.fleet.services.config.setSection(uid, "snmp", "test", () => ({ body: { port: 161 } }));
    const key = await bench.keyFor(["nodes::configure:gateway", "nodes::manage"]);
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
    const secret = { enabled: true, authPassphrase: "correct horse", privacyPassphrase: "battery staple" };
    const put = await bench.call("PUT", `/node/${uid}/snmp`, { json: secret });
    const shown = { enabled: true, authPassphrase: "", privacyPassphrase: "" };
    expect(put.json).toMatchObject({ config: { snmp: shown } });
    const key = await bench.keyFor(["nodes::configure:snmp"]);
    const part = await bench.call("PUT", `/node/${uid}/snmp`, { json: shown, key });
    expect(part.json).toEqual({ uid, config: { snmp: shown } });
    expect((await bench.fleet.node(uid))?.config).toEqual({ snmp: secret });
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
