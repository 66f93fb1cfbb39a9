import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { createApi } from "../../../../src/controller/http/api.ts";
import { route } from "../../../../src/controller/http/route.ts";
import { HostError, InternalError } from "../../../../src/errors.ts";
import { ApiBench } from "../../../support/control-plane/api-bench.ts";
import { eventRecord } from "../../../support/control-plane/fleet-stage.ts";
import { runs } from "../../../support/sample.ts";
import { anyText } from "../../../support/any-text.ts";

const bench = await ApiBench.create();
const node = await bench.fleet.add({ name: "one" });
await bench.fleet.services.clusters.create({ name: "pair" }, "test");
await bench.fleet.store.events.add(eventRecord(node));
// What a node answers is judged as well.
bench.fleet.script = () => Promise.resolve({ files: [], tasks: [] });

const PATHS: readonly string[] = bench.routes
  .filter(({ method }) => method === "GET")
  .map(({ path }) =>
    path
      .replace(/\{node(ID|Id)\}/, node.uid)
      .replace("{fqdn}", node.fqdn)
      .replaceAll(/\{\w+\}/g, "any"),
  );

const names = [
  ...new Set(bench.routes.flatMap(({ query }) => Object.keys(query?.shape ?? {}))),
  "projection[0][0]",
  "projection[0][1]",
  "projection[]",
  "__proto__",
  "constructor",
  "toString",
];
const values = [
  "1e9",
  "-1",
  "NaN",
  "__proto__",
  "constructor",
  "a:b",
  "a:b,c",
  "2026-01-01",
  "0",
  "%00",
  "[object Object]",
];

describe("hostile requests", () => {
  it("in the query never end as a fault", async () => {
    const text = fc.oneof(fc.constantFrom(...values), fc.string(), anyText(40));
    const pair = fc.tuple(fc.oneof(fc.constantFrom(...names), fc.string()), text);
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...PATHS), fc.array(pair, { maxLength: 8 }), async (path, pairs) => {
        const query = new URLSearchParams(pairs.map(([name, value]) => [wellFormed(name), wellFormed(value)]));
        const { status } = await bench.call("GET", `${path}?${query.toString()}`);
        // A terminal is asked for by a WebSocket only.
        expect([200, 404, 413, 422, 426]).toContain(status);
      }),
      { numRuns: runs(200) },
    );
  });

  it("in the raw query never end as a fault", async () => {
    const raw = fc.array(
      fc.constantFrom("%", "[", "]", "=", "&", "projection", "0", "%5B", "%E0%A4", "+", "#", ";", "?"),
    );
    await fc.assert(
      fc.asyncProperty(raw, async (parts) => {
        const { status } = await bench.call("GET", `/node?${parts.join("")}`);
        expect([200, 413, 422]).toContain(status);
      }),
    );
  });

  it("in the path never end as a fault", async () => {
    const segment = fc.oneof(
      fc.constantFrom("node", "v2", "..", "%2e%2e", "%", "%00", node.uid, "__proto__"),
      fc.string(),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(segment, { minLength: 1, maxLength: 5 }), async (segments) => {
        const path = segments
          .map((part) => (part.startsWith("%") ? part : encodeURIComponent(wellFormed(part))))
          .join("/");
        const { status, json } = await bench.call("GET", `/${path}`);
        expect(status).toBeLessThan(500);
        if (status === 404) expect(z.object({ code: z.string() }).safeParse(json).success).toBe(true);
      }),
    );
  });

  it("in the body of every operation never end as a fault", async () => {
    const taking = bench.routes.filter(({ body }) => body !== undefined);
    const path = (template: string) =>
      template
        .replace("{nodeID}", node.uid)
        .replace("{clusterFQDN}", "pair.example.net")
        .replace("{event}", "tg-ping")
        .replaceAll(/\{\w+\}/g, "any");
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...taking), fc.jsonValue({ maxDepth: 4 }), async (route, json) => {
        const { status } = await bench.call(route.method, path(route.path), { json });
        expect(status).toBeLessThan(500);
      }),
      { numRuns: runs(200) },
    );
  });

  it("with an overlong name are refused in a line of bounded length", async () => {
    const name = "n".repeat(100_000);
    for (const body of [`{"${name}":1,"${name}":2}`, `{"${name}":1}`]) {
      const headers = { "content-type": "application/json" };
      const { status, json } = await bench.call("PUT", `/node/${node.uid}/tag/site`, { headers, body });
      const lines = z.array(z.string()).parse(json);
      expect([status, lines.every(({ length }) => length < 2100)]).toEqual([422, true]);
    }
  });

  it("with U+0000 in the query or in a name are refused, whatever the store could look for", async () => {
    for (const [path, name] of [
      ["/v2/flow?connector=%00", "connector"],
      ["/v2/flow?reasons=a,b%00", "reasons"],
      ["/v2/event?q=%00", "q"],
      ["/audit/tail/config?itemID=a%00b", "itemID"],
    ] as const) {
      const answer = await bench.call("GET", path);
      expect([answer.status, answer.json]).toEqual([422, [`${name}: must not have the character U+0000`]]);
    }
    for (const path of ["/v2/agent-token/%00", "/v2/agent-token/a%00b"]) {
      expect((await bench.call("DELETE", path)).status).toBe(404);
    }
  });

  it("with an overlong query are refused as such", async () => {
    const answer = await bench.call("GET", `/node?tags=${"a".repeat(17_000)}`);
    expect([answer.status, answer.json]).toMatchObject([414, { code: "uri-too-long" }]);
  });

  it.each([
    new TypeError("secret detail"),
    new HostError("database-failed", "secret detail"),
    new InternalError("internal", "secret detail"),
  ])("that reach a fault of the program say nothing of it: %s", async (fault) => {
    const broken = await ApiBench.create();
    const faulty = route({
      method: "GET",
      path: "/faulty",
      operationId: "faulty",
      summary: "Fails",
      tag: "Nodes",
      access: { to: "all" },
      answers: {},
      handle: () => {
        throw fault;
      },
    });
    const answer = await createApi({ ...broken.deps, routes: [faulty] }).request("/faulty");
    expect(answer.status).toBe(500);
    expect(await answer.json()).toEqual({ error: "internal error", message: "internal error", code: "internal" });
    expect(broken.logged.join("")).toContain("secret detail");
  });
});

// A lone surrogate cannot be sent in an address.
const wellFormed = (text: string): string => Buffer.from(text).toString();
