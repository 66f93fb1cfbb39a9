import { readFileSync } from "node:fs";
import { beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { isKnownAction, knownPermissions } from "../../../../src/controller/access/policies/permissions.ts";
import { TERMINAL_PATH } from "../../../../src/controller/containers/terminal-routes.ts";
import type { Route } from "../../../../src/controller/http/route.ts";
import { ApiBench, members } from "../../../support/control-plane/api-bench.ts";

// The table is the same whatever the bench, and a test per route needs it before the first hook runs.
const { routes } = await ApiBench.create();
const guarded = routes.filter(({ permissions }) => permissions.length > 0);
const label = ({ method, path }: Route): string => `${method} ${path}`;

const UNKNOWN_NODE = "00000000-0000-4000-8000-000000000000";

let bench: ApiBench;
let uid = "";
/** Another one, for tests that change what is stored. */
let changed: ApiBench;
let changedUid = "";
let restore: () => Promise<void>;

beforeAll(async () => {
  bench = await ApiBench.create();
  uid = (await bench.fleet.add({ name: "one" })).uid;
  changed = await ApiBench.create();
  changedUid = (await changed.fleet.add({ name: "one" })).uid;
  restore = await changed.keep();
});

const filled = (path: string, id = uid): string =>
  path
    .replace(/\{node(ID|Id)\}/, id)
    .replace(/\{fqdn\}/, "one.example.net")
    .replace(/\{clusterFQDN\}/, "pair.example.net")
    .replace(/\{event\}/, "tg-ping")
    .replace(/\{domain\}/, "example.net")
    .replaceAll(/\{\w+\}/g, "any");

describe("every route", () => {
  it("has its own operationId and its own place", () => {
    expect(new Set(routes.map(({ operationId }) => operationId)).size).toBe(routes.length);
    expect(new Set(routes.map(label)).size).toBe(routes.length);
  });

  it("asks for permissions that a policy can name", () => {
    const named = guarded.flatMap(({ permissions }) => permissions).filter((name) => !name.includes("{event}"));
    expect(named.filter((name) => !isKnownAction(name))).toEqual([]);
  });

  it("but seven needs a permission", () => {
    const open = routes.filter(({ permissions }) => permissions.length === 0).map(({ path }) => path);
    expect(open.sort()).toEqual([
      "/healthz",
      "/oauth/token",
      "/openapi.json",
      "/org/mine",
      "/registry/token",
      "/releases/{name}",
      "/v2/auth/token",
    ]);
  });

  it.each(guarded.map((route) => [label(route), route] as const))("%s wants credentials", async (_, route) => {
    for (const key of [undefined, "wrong", "Bearer wrong", "Bearer a.b.c", `Basic ${btoa("a:b")}`, "x".repeat(9000)]) {
      const answer = await bench.call(route.method, filled(route.path), { key });
      expect(answer.status).toBe(401);
      expect(answer.json).toMatchObject({ code: "unauthorized", error: expect.any(String) as unknown });
      expect(answer.headers.get("www-authenticate")).toBeNull();
    }
    const browser = { accept: "text/html,application/xhtml+xml" };
    const shown = await bench.call(route.method, filled(route.path), { key: undefined, headers: browser });
    expect([shown.status, shown.headers.get("www-authenticate")]).toEqual([
      401,
      expect.stringMatching(/^Bearer realm=/),
    ]);
  });

  it.each(guarded.map((route) => [label(route), route] as const))("%s wants its permission", async (_, route) => {
    const needed = route.permissions.map((name) => name.replace("{event}", "tg-ping"));
    const others = [...knownPermissions].filter((name) => !needed.includes(name));
    const elsewhere = ["tgrn:tg::access-apps:app/*", "tgrn:tg::nodes:gatekeeper/one"];
    const keys = [
      await bench.keyFor(others),
      await bench.keyFor(["*"], ["*"], needed),
      await bench.keyFor(needed, elsewhere),
    ];
    for (const key of keys) {
      const answer = await bench.call(route.method, filled(route.path), { key });
      expect(answer.status).toBe(403);
      expect(answer.json).toMatchObject({ code: "forbidden", details: { action: needed[0] } });
      expect(z.object({ details: z.object({ resource: z.string() }) }).safeParse(answer.json).success).toBe(true);
    }
    expect(await bench.fleet.users()).toEqual([]);
  });

  it.each(guarded.map((route) => [label(route), route] as const))("%s is open to its permission", async (_, route) => {
    const needed = route.permissions.map((name) => name.replace("{event}", "tg-ping"));
    for (const permission of needed) {
      await restore();
      const key = await changed.keyFor([permission]);
      const { status } = await changed.call(route.method, filled(route.path, changedUid), { key });
      expect([401, 403, 405, 500]).not.toContain(status);
    }
  });

  it("answers a body only to a body it can read", async () => {
    const taking = guarded.filter(({ body }) => body !== undefined);
    expect(taking.length).toBeGreaterThan(10);
    const tooLarge = Buffer.alloc(4 * 1024 * 1024 + 1, " ");
    for (const route of taking) {
      const path = filled(route.path, UNKNOWN_NODE);
      const send = (body: string | Uint8Array, type = "application/json") =>
        bench.call(route.method, path, { body, headers: { "content-type": type } });
      expect((await send("{}", "text/plain")).status).toBe(415);
      for (const [body, line] of [
        ["{", /^\w+: not JSON: /],
        [new Uint8Array([0xff, 0xfe]), /^\w+: not valid UTF-8$/],
        ['{"a":{"__proto__":{}}}', /^(\w+\.)?a\.__proto__: /],
        ['{"a":[{"b":1,"\\u0062":2}]}', /^(\w+\.)?a\.0\.b: 'a\.0\.b' is given twice$/],
        ["[".repeat(33) + "]".repeat(33), /^\w+: nested deeper than/],
      ] as const) {
        const answer = await send(body);
        expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(line)]]);
      }
      expect((await send(tooLarge)).status).toBe(413);
      expect((await send("[]")).status).toBe(422);
      // At least one mebibyte reaches the checks of content.
      if (route.path === "/v2/auth/token") continue;
      expect((await send(`{"zz":"${"x".repeat(1024 * 1024 - 64)}"}`)).status).not.toBe(413);
    }
    // Two records take fields that the controller does not know.
    const tolerant = /^admin: (?:Organization|Configuration of apigw of domain example\.net) changed$/;
    expect((await bench.fleet.changes()).filter((change) => !tolerant.test(change))).toEqual([]);
    expect(bench.fleet.triggered).toEqual([]);
  });
});

const written = routes
  .filter(({ method, form }) => method !== "GET" && form === undefined)
  .map((route) => [label(route), route] as const);
const all = routes.map((route) => [label(route), route] as const);

let added = 0;
/** Adds a node, so that a change of one does not meet the change before. */
const freshNode = async (): Promise<string> => (await bench.fleet.add({ name: `fresh-${(added += 1)}` })).uid;

describe("every route, as clients use it,", () => {
  it("promises 200, and no status that clients take for a failure or a conflict", () => {
    const statuses = routes.flatMap(({ answers }) => Object.keys(answers).map(Number));
    const success = new Set(statuses.filter((status) => status < 300));
    // 101 is a terminal, 206 a range of a release file that the client asked for.
    expect([...success].sort((a, b) => a - b)).toEqual([101, 200, 206]);
    expect(statuses).not.toContain(409);
    const bad = routes.filter(({ path, answers }) => path !== "/oauth/token" && 400 in answers);
    expect(bad.map(label)).toEqual([]);
  });

  it.each(written)("%s takes the literal null, with and without a type, for no body", async (_, route) => {
    const send = async (body: string | undefined, headers: Record<string, string>) => {
      const options = body === undefined ? { headers } : { headers, body };
      const { status, json } = await bench.call(route.method, filled(route.path, await freshNode()), options);
      return [status, Array.isArray(json) ? json : []];
    };
    const none = await send(undefined, {});
    expect(await send("null", { "content-type": "" })).toEqual(none);
    expect(await send(" null\n", { "content-type": "application/json" })).toEqual(none);
  });

  const ignoring = written.filter(([, { method, body }]) => method === "DELETE" && body === undefined);
  it.each(ignoring)("%s ignores its body", async (_, route) => {
    const plain = await bench.call(route.method, filled(route.path, await freshNode()));
    for (const body of ['{"uid":"x"}', "{", "x".repeat(2 * 1024 * 1024)]) {
      const { status } = await bench.call(route.method, filled(route.path, await freshNode()), { body });
      expect(status).toBe(plain.status);
    }
  });

  it("of DELETE answers {}, and only that of the data store reads a body", () => {
    const removing = routes.filter(({ method }) => method === "DELETE");
    for (const route of removing) {
      const schema = route.answers[200]?.schema;
      expect([label(route), schema?.safeParse({}).success, schema?.safeParse({ uid: "x" }).success]).toEqual([
        label(route),
        true,
        false,
      ]);
    }
    expect(removing.filter(({ body }) => body !== undefined).map(label)).toEqual([
      "DELETE /v2/node/{nodeID}/data-store",
    ]);
  });

  it.each(all)("%s refuses a query parameter that it does not know", async (_, route) => {
    for (const name of ["zzz", "zzz[0]", "zzz%5B0%5D"]) {
      const answer = await bench.call(route.method, `${filled(route.path)}?${name}=1`);
      const spelled = decodeURIComponent(name);
      expect([answer.status, answer.json]).toEqual([
        422,
        [expect.stringContaining(`query: unknown parameter '${spelled}'; `)],
      ]);
    }
  });

  it.each(all)("%s is served below /api, too", async (_, route) => {
    const path = filled(route.path);
    const plain = await bench.call(route.method, path, { key: undefined });
    const alias = await bench.call(route.method, `/api${path}`, { key: undefined });
    expect(alias.status).toBe(plain.status);
    expect(alias.status === 404 ? alias.json : undefined).not.toMatchObject({ code: "unknown-path" });
  });

  it("gives the same answer below /api", async () => {
    for (const path of ["/node", `/node/${uid}`, "/v2/policy", "/openapi.json", "/org/mine"]) {
      expect((await bench.call("GET", `/api${path}`)).json).toEqual((await bench.call("GET", path)).json);
    }
  });

  it("is upgraded to a terminal below /api, too", () => {
    const paths = routes.filter(({ answers }) => 101 in answers).map(({ path }) => filled(path));
    expect(paths).toHaveLength(1);
    for (const path of paths) {
      const upgraded = [path, `/api${path}`, `/api/api${path}`].map((one) => TERMINAL_PATH.test(one));
      expect(upgraded).toEqual([true, true, false]);
    }
  });

  it("has no trailing part, and decodes only percent signs in a segment", async () => {
    for (const path of [`/node/${uid}/`, "/node/", "/node//", "/api/api/node", "/API/node"]) {
      expect([path, (await bench.call("GET", path)).json]).toMatchObject([path, { code: "unknown-path" }]);
    }
    const tag = (name: string) => bench.call("PUT", `/node/${uid}/tag/${name}`, { json: { value: "x" } });
    expect((await tag("a%2Db")).status).toBe(200);
    expect((await bench.fleet.services.nodes.get(uid))?.tags).toMatchObject({ "a-b": "x" });
    expect((await bench.call("GET", "/v2/service-user/a+b")).json).toEqual(
      (await bench.call("GET", "/v2/service-user/a%2Bb")).json,
    );
  });
});

describe("a query", () => {
  const lines = async (path: string) => (await bench.call("GET", path)).json;

  it("names the nearest parameter, or all", async () => {
    expect(await lines("/node?tag=")).toEqual(["query: unknown parameter 'tag'; did you mean 'tags'?"]);
    expect(await lines("/node?Cluster=a&x=1")).toEqual([
      "query: unknown parameter 'Cluster'; did you mean 'cluster'?",
      "query: unknown parameter 'x'; known are cluster, tags, projection",
    ]);
    expect(await lines("/cluster?x=")).toEqual(["query: unknown parameter 'x'; this path has none"]);
  });

  it("repeats only the head of an overlong name, and a hundred names", async () => {
    const [line = ""] = z.array(z.string()).parse(await lines(`/node?${"x".repeat(9000)}=1`));
    expect(line.length).toBeLessThan(200);
    const many = Array.from({ length: 1500 }, (_, n) => `x${n}`).join("&");
    expect(await lines(`/node?${many}`)).toHaveLength(100);
  });

  it("takes square brackets raw and percent-encoded", async () => {
    const raw = await lines("/node?projection[0]=name&projection[2][0]=shadow&projection[2][1]=reported");
    const encoded = "projection%5B0%5D=name&projection%5B2%5D%5B0%5D=shadow&projection%5B2%5D%5B1%5D=reported";
    expect(await lines(`/node?${encoded}`)).toEqual(raw);
    expect(raw).toEqual(expect.arrayContaining([expect.objectContaining({ name: "one" })]));
    expect(JSON.stringify(raw)).toContain('"shadow":{"reported":{');
    expect(await lines("/node?projection[]=config")).toEqual([
      expect.stringMatching(/^projection: config is too large/),
    ]);
    expect((await bench.call("GET", "/v2/event?levels[0]=INFO&levels%5B1%5D=ERROR")).status).toBe(200);
  });
});

describe("requests that fit no route", () => {
  it("get JSON for an unknown path, with and without credentials", async () => {
    for (const key of ["admin", undefined]) {
      const answer = await bench.call("GET", "/nowhere", { key });
      expect([answer.status, answer.json]).toMatchObject([404, { code: "unknown-path" }]);
    }
  });

  it("get the allowed methods for a wrong one", async () => {
    const answer = await bench.call("PATCH", "/node");
    expect([answer.status, answer.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
    expect((await bench.call("DELETE", "/v2/policy/a")).status).toBe(404);
    const node = await bench.call("POST", `/node/${uid}`, { json: {} });
    expect(node.headers.get("allow")).toBe("DELETE, GET, HEAD, PUT");
  });

  it("are not opened to other origins", async () => {
    const answer = await bench.call("GET", "/healthz", { headers: { origin: "https://evil.example" } });
    expect([...answer.headers.keys()].filter((name) => name.startsWith("access-control"))).toEqual([]);
  });
});

describe("the request id", () => {
  it("is made, or taken over when it is harmless", async () => {
    expect((await bench.call("GET", "/healthz")).headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
    const given = await bench.call("GET", "/healthz", { headers: { "x-request-id": "abc-1" } });
    expect(given.headers.get("x-request-id")).toBe("abc-1");
    const odd = await bench.call("GET", "/healthz", { headers: { "x-request-id": "a b" } });
    expect(odd.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
  });

  it("is in the log of what fits no route, too", async () => {
    bench.logged.length = 0;
    await bench.call("GET", "/nowhere", { headers: { "x-request-id": "lost" } });
    expect(bench.logged.map((line) => members(JSON.parse(line)))).toMatchObject([
      { requestId: "lost", operation: "none", status: 404 },
    ]);
  });

  it("is in the one line a request leaves in the log, without secrets", async () => {
    bench.logged.length = 0;
    const key = await bench.keyFor(["nodes::read"]);
    const { headers } = await bench.call("GET", "/node?tags=secret:value", { key });
    expect(bench.logged).toHaveLength(1);
    const line = members(JSON.parse(bench.logged[0] ?? ""));
    expect(line).toMatchObject({
      requestId: headers.get("x-request-id"),
      operation: "listNodes",
      status: 200,
      level: 20,
    });
    expect(bench.logged[0]).not.toContain("secret:value");
  });
});

describe("the guide", () => {
  const [, table] = readFileSync("docs/guide/limits.md", "utf8").split("## Paths that are not served");
  const paths = [...(table ?? "").matchAll(/`(?:([A-Z]+) )?(\/[^`]+)`/g)].map(
    ([, method, path = ""]) => [method, path] as const,
  );

  it("names paths that are not served", () => {
    expect(paths.length).toBeGreaterThan(10);
  });

  it.each(paths)("rightly says that %s %s is not", async (method, path) => {
    const methods = method === undefined ? ["GET", "POST", "PUT", "DELETE"] : [method];
    for (const one of methods) {
      const { status } = await bench.call(one, filled(path.replace("*", "any")));
      expect([404, 405], `${one} ${path}`).toContain(status);
      // Below a path that ends in a star nothing is served, whatever its name.
      if (!path.endsWith("*")) continue;
      const below = routes.filter(({ method: served, path: at }) => served === one && at.startsWith(path.slice(0, -1)));
      expect(below.map(label)).toEqual([]);
    }
  });
});
