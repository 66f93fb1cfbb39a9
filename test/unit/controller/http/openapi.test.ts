import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { triggerSchemas } from "../../../../src/protocol/triggers/schemas.ts";
import { ApiBench, members } from "../../../support/control-plane/api-bench.ts";
import { eventRecord } from "../../../support/control-plane/fleet-stage.ts";

const Operation = z.object({
  operationId: z.string(),
  summary: z.string().min(10),
  parameters: z.array(z.object({ name: z.string(), in: z.enum(["path", "query"]), required: z.boolean() })),
  responses: z.record(
    z.string(),
    z.object({
      description: z.string(),
      content: z.record(z.string(), z.object({ schema: z.record(z.string(), z.unknown()) })).optional(),
    }),
  ),
  security: z.array(z.unknown()).optional(),
  deprecated: z.literal(true).optional(),
  "x-permission": z.string().optional(),
});
const Document = z.object({
  openapi: z.string().regex(/^3\.1\./),
  paths: z.record(z.string(), z.record(z.enum(["get", "post", "put", "delete"]).or(z.string()), Operation)),
  components: z.object({ schemas: z.record(z.string(), z.unknown()) }),
});

const Schema = z.record(z.string(), z.unknown());
/** Events that are answered: a terminal is opened by another operation. */
const answeredEvents = Object.keys(triggerSchemas)
  .filter((event) => event !== "container-exec")
  .sort();

let bench: ApiBench;
let raw: unknown;
let document: z.infer<typeof Document>;

beforeAll(async () => {
  bench = await ApiBench.create();
  raw = (await bench.call("GET", "/openapi.json", { key: undefined })).json;
  document = Document.parse(raw);
});

describe("the OpenAPI document", () => {
  it("lists every route, and nothing else", () => {
    const listed = Object.entries(document.paths).flatMap(([path, item]) =>
      Object.entries(item).map(([method, { operationId }]) => [method.toUpperCase(), path, operationId].join(" ")),
    );
    const table = bench.routes.map(({ method, path, operationId }) => [method, path, operationId].join(" "));
    expect(listed.sort()).toEqual(table.sort());
  });

  it("names every path parameter and the permission", () => {
    for (const { method, path, permissions, isOpen } of bench.routes) {
      const operation = document.paths[path]?.[method.toLowerCase()];
      const named = operation?.parameters.filter((one) => one.in === "path").map(({ name }) => name);
      expect(named).toEqual([...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name));
      expect(operation?.["x-permission"]).toBe(permissions.length === 0 ? undefined : permissions.join(" or "));
      expect(operation?.security).toEqual(isOpen ? [] : undefined);
    }
  });

  it("refers only to components that are there, and names none by an inner id", () => {
    const text = JSON.stringify(raw);
    const references = [...text.matchAll(/"\$ref":"([^"]+)"/g)].map(([, reference]) => reference ?? "");
    expect(references.length).toBeGreaterThan(20);
    for (const reference of references) {
      expect(document.components.schemas).toHaveProperty([reference.replace("#/components/schemas/", "")]);
    }
    expect(text).not.toContain("$defs");
    expect(Object.keys(document.components.schemas)).toEqual(expect.arrayContaining(["Node", "Policy", "Problem"]));
  });

  it("describes every body that is read", () => {
    const bodies = z.object({ paths: z.record(z.string(), z.record(z.string(), z.looseObject({}))) }).parse(raw).paths;
    for (const { method, path, body, form } of bench.routes) {
      const described = bodies[path]?.[method.toLowerCase()]?.["requestBody"];
      if (body === undefined && form === undefined) expect(described).toBeUndefined();
      else expect(members(members(described)["content"])).toHaveProperty(["application/json", "schema"]);
    }
  });

  it("calls only GET /alert and the older path of flow logs deprecated", () => {
    const operations = Object.values(document.paths).flatMap((item) => Object.values(item));
    const old = operations.filter(({ deprecated }) => deprecated === true);
    expect(old.map(({ operationId }) => operationId)).toEqual(["tailFlowLogs", "listAlertsV1"]);
  });

  it("says which query fields there are", () => {
    const names = document.paths["/v2/event"]?.["get"]?.parameters.map(({ name }) => name) ?? [];
    expect(names).toEqual(
      expect.arrayContaining(["sTime", "eTime", "nodeIDs", "levels", "limit", "page", "sort", "q"]),
    );
    const license = document.paths["/node/license"]?.["get"]?.parameters;
    expect(license).toMatchObject([
      { name: "name", required: true },
      { name: "type", required: false },
      { name: "jkt", required: false },
      { name: "orderID", required: false },
    ]);
  });

  it("describes lists as they are sent, headers, where it is served, and answers that may grow", () => {
    const text = z.object({ servers: z.unknown(), paths: z.record(z.string(), z.record(z.string(), z.unknown())) });
    const { servers, paths } = text.parse(raw);
    expect(servers).toEqual([{ url: "/" }]);
    const parameters = z.object({ parameters: z.array(z.looseObject({ name: z.string() })) });
    const of = (path: string) => parameters.parse(paths[path]?.["get"]).parameters;
    const lists = [...of("/v2/event"), ...of("/node"), ...of("/stats/realtime/usage")].filter(
      ({ style, explode }) => style === "form" && explode === false,
    );
    expect(lists.map(({ name }) => name).sort()).toEqual(
      ["eventTypes", "filters", "itemTypes", "levels", "nodeIDs", "nodeIDs", "tags"].sort(),
    );
    for (const path of ["/v2/event", "/v2/event/{nodeId}"]) {
      expect(paths[path]?.["get"]).toMatchObject({
        responses: { 200: { headers: { "x-total-count": { schema: { type: "integer" } } } } },
      });
    }
    const open = (value: unknown): void => expect(JSON.stringify(value)).not.toContain('"additionalProperties":false');
    for (const item of Object.values(document.paths)) for (const { responses } of Object.values(item)) open(responses);
    for (const name of ["Node", "Cluster", "Event", "Alert", "PublicPolicy", "ServiceUser", "Credential"]) {
      expect(document.components.schemas).toHaveProperty([name]);
      open(document.components.schemas[name]);
    }
    expect(JSON.stringify(document.components.schemas["Policy"])).toContain('"additionalProperties":false');
  });

  it("describes the answers that are really given", async () => {
    const node = await bench.fleet.add({ name: "one" });
    await bench.fleet.store.events.add(eventRecord(node));
    await bench.fleet.services.clusters.create({ name: "pair" }, "test");
    const [logs, gateway] = ["/v2/node/{nodeID}/plugin-logs/gateway-details", "/node/{nodeID}/config/gateway"];
    const rtt = { minRtt: 1, maxRtt: 1, meanRtt: 1, stdRtt: 0, numRtt: 1 };
    await bench.gatewayDetails.add(node, [{ time: 500, node: "gw", ...rtt }]);
    const statements = [{ effect: "allow", actions: ["nodes::read"] }];
    const policy = { name: "reader", statements, resources: ["*"] };
    const examples: readonly (readonly [string, string, string, unknown?])[] = [
      ["get", "/node", "/node"],
      ["get", "/node/{nodeID}", `/node/${node.uid}`],
      ["get", "/node/{nodeID}", "/node/nothing"],
      ["put", "/node/{nodeID}", `/node/${node.uid}`, { state: "OFF" }],
      ["get", "/cluster", "/cluster"],
      ["get", "/v2/event", "/v2/event"],
      ["get", "/alert", "/alert"],
      ["post", "/v2/policy", "/v2/policy", policy],
      ["post", "/v2/service-user", "/v2/service-user", { name: "bot", policies: ["reader"] }],
      ["post", "/v2/service-user/{name}/token", "/v2/service-user/bot/token"],
      ["get", "/stats/realtime/usage", "/stats/realtime/usage"],
      ["get", logs, `${logs.replace("{nodeID}", node.uid)}?startDate=0&endDate=1`],
      ["get", logs, logs.replace("{nodeID}", node.uid)],
      ["put", gateway, gateway.replace("{nodeID}", node.uid), { enabled: true }],
      ["put", gateway, gateway.replace("{nodeID}", node.uid), { enabled: false }],
      ["get", "/healthz", "/healthz"],
    ];
    for (const [method, template, path, json] of examples) {
      const answer = await bench.call(method.toUpperCase(), path, json === undefined ? {} : { json });
      const described = document.paths[template]?.[method]?.responses[String(answer.status)];
      const schema = described?.content?.["application/json"]?.schema;
      expect([template, answer.status, schema === undefined]).toEqual([template, answer.status, false]);
      const checked = checker(schema ?? {}).safeParse(answer.json);
      expect([template, checked.error?.issues]).toEqual([template, undefined]);
    }
  });

  it("describes the bodies of trigger events, each in its own form", () => {
    const text = JSON.stringify(members(members(members(raw)["paths"])["/node/{nodeID}/trigger/{event}"]));
    for (const [id, good, bad] of [
      ["TgPing", { host: "192.0.2.1", count: 4 }, { count: 4 }],
      ["TgNc", { host: "h", port: 22 }, { host: "h", port: 70_000 }],
      ["TgTraceroute", { host: "h" }, {}],
      ["SpeedTest", { action: "upload" }, { action: "sideways" }],
      ["Plan", { config: { services: {} } }, { document: {} }],
      ["Rollback", { document: "node", plan: true }, { version: 1 }],
      ["ConfigShow", { section: "core" }, { sections: ["core"] }],
    ] as const) {
      expect(text).toContain(`#/components/schemas/${id}"`);
      const check = checker(members(document.components.schemas[id]));
      expect([id, check.safeParse(good).success, check.safeParse(bad).success]).toEqual([id, true, false]);
    }
  });

  it("has patterns that the regular expressions of every language take", () => {
    const patterns = patternsIn(raw);
    expect(patterns.size).toBeGreaterThan(30);
    expect([...patterns].filter((pattern) => !PORTABLE.test(pattern))).toEqual([]);
    const others = ["(?!a)b", "(?<=a)b", "(?<n>a)", "(?i)a", "\\p{Cc}", "\\u0000", "\\k<n>", "a*?", "a++", "a{1,1001}"];
    expect(others.filter((pattern) => PORTABLE.test(pattern))).toEqual([]);
  });

  it("names the forms of each trigger event's body and answer", () => {
    const operation = members(members(members(members(raw)["paths"])["/node/{nodeID}/trigger/{event}"])["post"]);
    const { parameter, values } = z
      .object({ parameter: z.string(), values: z.record(z.string(), z.object({ body: Schema, answer: Schema })) })
      .parse(operation["x-variants"]);
    expect([parameter, Object.keys(values).sort()]).toEqual(["event", answeredEvents]);
    for (const [event, { answer }] of Object.entries(values)) {
      expect([event, Object.keys(answer)]).not.toEqual([event, []]);
      expect(answer["$ref"]).toMatch(/^#\/components\/schemas\/\w+$/);
    }
    expect(values["tg-ping"]?.answer["$ref"]).toBe("#/components/schemas/ToolOutput");
    expect(values["dns-health"]?.answer["$ref"]).toBe("#/components/schemas/DnsHealthAnswer");
  });

  it("names the form of each section that is written", () => {
    const config = members(members(document.components.schemas["Config"])["properties"]);
    expect(Object.keys(config)).toEqual([
      "connectors",
      "services",
      "gateway",
      "network",
      "alert",
      "cluster",
      "snmp",
      "apigw",
    ]);
    const network = members(document.components.schemas["NetworkSection"]);
    expect(members(network["properties"])).toHaveProperty("interfaces");
  });

  it("is small, compressed as the client accepts it, and sent only once", async () => {
    const ask = (headers: Record<string, string>) =>
      bench.app.request("/openapi.json", { headers: { "accept-encoding": "identity", ...headers } });
    const plain = await ask({});
    const text = await plain.text();
    expect(plain.headers.get("content-encoding")).toBeNull();
    const decoders = { br: brotliDecompressSync, gzip: gunzipSync } as const;
    for (const [accepted, coding] of [
      ["br", "br"],
      ["gzip", "gzip"],
      ["gzip, deflate, br", "br"],
      ["br;q=0, *", "gzip"],
      ["GZIP;q=0.5", "gzip"],
    ] as const) {
      const packed = await ask({ "accept-encoding": accepted });
      const bytes = Buffer.from(await packed.arrayBuffer());
      expect([accepted, packed.headers.get("content-encoding"), packed.headers.get("vary")]).toEqual([
        accepted,
        coding,
        "accept-encoding",
      ]);
      expect(bytes.length).toBeLessThan(60_000);
      expect(decoders[coding](bytes).toString()).toBe(text);
      const etag = packed.headers.get("etag") ?? "";
      const known = await ask({ "accept-encoding": accepted, "if-none-match": `"x", W/${etag}` });
      expect([known.status, await known.text(), known.headers.get("etag")]).toEqual([304, "", etag]);
      expect(etag).not.toBe(plain.headers.get("etag"));
    }
    expect((await ask({ "if-none-match": '"x"' })).status).toBe(200);
  });

  it("describes nothing so loosely that a wrong answer would fit", () => {
    const schema = document.paths["/node"]?.["get"]?.responses["200"]?.content?.["application/json"]?.schema ?? {};
    expect(checker(schema).safeParse([{ uid: "x" }]).success).toBe(false);
    expect(members(document.components.schemas["Node"])["required"]).toEqual(
      expect.arrayContaining(["uid", "state", "type", "tags", "tgTags", "keys", "tgrn"]),
    );
  });
});

/** Returns the patterns of all schemas. */
function patternsIn(value: unknown, found = new Set<string>()): ReadonlySet<string> {
  if (typeof value !== "object" || value === null) return found;
  for (const [name, inner] of Object.entries(value)) {
    if (name === "pattern" && typeof inner === "string") found.add(inner);
    else patternsIn(inner, found);
  }
  return found;
}

const ESCAPE = String.raw`\\(?:[dDwWsS./\-*+?()[\]{}|^$\\]|x[0-9a-f]{2})`;
const CLASS = String.raw`\[\^?(?:${ESCAPE}|[^\]\\[])+\]`;
const TIMES = String.raw`(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})?(?![*+?{])`;
/** Neither lookaround, names, flags, properties and references, nor lazy, possessive and long repetition (above 999). */
const PORTABLE = new RegExp(String.raw`^(?:(?:${ESCAPE}|${CLASS}|\((?:\?:)?(?!\?)|\)|[^\\()[\]{}*+?])${TIMES})*$`);

/** A validator made from the document's own JSON Schema, not from the schema behind it. */
function checker(schema: object): z.ZodType {
  const text = JSON.stringify({ ...schema, $defs: document.components.schemas });
  return z.fromJSONSchema(members(JSON.parse(text.replaceAll("#/components/schemas/", "#/$defs/"))));
}
