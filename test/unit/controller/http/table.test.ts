import { readFileSync } from "node:fs";
import { beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { isKnownAction, knownPermissions } from "../../../../src/controller/access/policies/permissions.ts";
import type { Route } from "../../../../src/controller/http/route.ts";
import { ApiBench, members } from "../../../support/control-plane/api-bench.ts";

// The table is the same whatever the bench, and a test per route needs it before the first hook runs.
const { routes } = await ApiBench.create();
const guarded = routes.filter(({ permissions }) => permissions.length > 0);
const label = ({ method, path }: Route): string => `${method} ${path}`;

let bench: ApiBench;
let uid = "";

beforeAll(async () => {
  bench = await ApiBench.create();
  uid = (await bench.fleet.add({ name: "one" })).uid;
});

const filled = (path: string): string =>
  path
    .replace(/\{node(ID|Id)\}/, uid)
    .replace(/\{fqdn\}/, "one.example.net")
    .replace(/\{clusterFQDN\}/, "pair.example.net")
    .replace(/\{event\}/, "tg-ping")
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

  it("but five needs a permission", () => {
    const open = routes.filter(({ permissions }) => permissions.length === 0).map(({ path }) => path);
    expect(open.sort()).toEqual(["/healthz", "/oauth/token", "/openapi.json", "/registry/token", "/releases/{name}"]);
  });

  it.each(guarded.map((route) => [label(route), route] as const))("%s wants credentials", async (_, route) => {
    for (const key of [undefined, "wrong", "Bearer wrong", "Bearer a.b.c", `Basic ${btoa("a:b")}`, "x".repeat(9000)]) {
      const answer = await bench.call(route.method, filled(route.path), { key });
      expect(answer.status).toBe(401);
      expect(answer.json).toMatchObject({ code: "unauthorized", error: expect.any(String) as unknown });
      expect(answer.headers.get("www-authenticate")).toMatch(/^Bearer realm=/);
    }
  });

  it.each(guarded.map((route) => [label(route), route] as const))("%s wants its permission", async (_, route) => {
    const others = [...knownPermissions].filter((name) => !route.permissions.includes(name));
    const needed = route.permissions.map((name) => name.replace("{event}", "tg-ping"));
    const elsewhere = ["tgrn:tg::access-apps:app/*", "tgrn:tg::nodes:gatekeeper/one"];
    const keys = [
      await bench.keyFor(others),
      await bench.keyFor(["*"], ["*"], needed),
      await bench.keyFor(needed, elsewhere),
    ];
    for (const key of keys) {
      const answer = await bench.call(route.method, filled(route.path), { key });
      expect(answer.status).toBe(403);
      expect(answer.json).toMatchObject({ code: "forbidden", details: { permission: needed.join(" or ") } });
      expect(z.object({ details: z.object({ resource: z.string() }) }).safeParse(answer.json).success).toBe(true);
    }
    expect(await bench.fleet.users()).toEqual([]);
  });

  it.each(guarded.map((route) => [label(route), route] as const))("%s is open to its permission", async (_, route) => {
    const needed = route.permissions.map((name) => name.replace("{event}", "tg-ping"));
    for (const permission of needed) {
      const fresh = await ApiBench.create();
      uid = (await fresh.fleet.add({ name: "one" })).uid;
      const { status } = await fresh.call(route.method, filled(route.path), { key: await fresh.keyFor([permission]) });
      expect([401, 403, 405, 500]).not.toContain(status);
    }
  });

  it("answers a body only to a body it can read", async () => {
    const taking = guarded.filter(({ body }) => body !== undefined);
    expect(taking.length).toBeGreaterThan(10);
    for (const route of taking) {
      const path = filled(route.path);
      const send = (body: string | Uint8Array, type = "application/json") =>
        bench.call(route.method, path, { body, headers: { "content-type": type } });
      expect((await send("{}", "text/plain")).status).toBe(415);
      expect((await send("{")).status).toBe(400);
      expect((await send(new Uint8Array([0xff, 0xfe]))).status).toBe(400);
      expect((await send('{"a":{"__proto__":{}}}')).status).toBe(422);
      expect((await send("[".repeat(33) + "]".repeat(33))).status).toBe(422);
      expect((await send(" ".repeat(4 * 1024 * 1024 + 1))).status).toBe(413);
      expect((await send("[]")).status).toBe(422);
    }
    expect(await bench.fleet.users()).toEqual([]);
    expect(bench.fleet.triggered).toEqual([]);
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
