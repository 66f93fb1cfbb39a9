import { beforeAll, expect, it } from "vitest";
import type { Policy } from "../../../../src/controller/access/policies/policy.ts";
import type { Route } from "../../../../src/controller/http/route.ts";
import { ApiBench } from "../../../support/control-plane/api-bench.ts";
import { SERVED } from "../../../support/control-plane/specified-operations.ts";

const CLUSTER = "pair.example.net";
// The table is the same whatever the bench, and a test per operation needs it before the first hook runs.
const { routes } = await ApiBench.create();
const guarded = routes
  .filter(({ permissions }) => permissions.length > 0)
  .map((route) => [`${route.method} ${route.path}`, route] as const);

const statements = [{ effect: "allow", actions: ["nodes::read"] }];

let bench: ApiBench;
let uid = "";
let restore: () => Promise<void>;

// A node and a cluster that have the tag `env` `prod`, and of every other kind one.
beforeAll(async () => {
  bench = await ApiBench.create();
  uid = (await bench.fleet.add({ name: "one", tags: { env: "prod" } })).uid;
  await bench.call("POST", "/cluster", { json: { name: "pair" } });
  await bench.call("PUT", `/cluster/${CLUSTER}/tag/env`, { json: { value: "prod" } });
  await bench.call("POST", "/v2/policy", { json: { name: "any", statements, resources: ["*"] } });
  await bench.call("POST", "/v2/service-user", { json: { name: "any" } });
  restore = await bench.keep();
});

const filled = (path: string): string =>
  path
    .replace(/\{node(ID|Id)\}/, uid)
    .replace("{fqdn}", "one.example.net")
    .replace("{clusterFQDN}", CLUSTER)
    .replace("{event}", "tg-ping")
    .replace("{tagName}", "env")
    .replaceAll(/\{\w+\}/g, "any");

const withEvent = (permission: string): string => permission.replace("{event}", "tg-ping");

const connectors = { connectors: [] };
const services = { services: [] };
/** Bodies and queries with which operations succeed. */
const REQUESTS: Readonly<Record<string, { readonly query?: string; readonly json?: unknown }>> = {
  "GET /node/license": { query: "?name=new" },
  "PUT /node/{nodeID}": { json: { state: "INACTIVE" } },
  "PUT /node/{nodeID}/config/alert": { json: {} },
  "PUT /node/{nodeID}/config/cluster": { json: {} },
  "PUT /node/{nodeID}/config/network": { json: {} },
  "PUT /node/{nodeID}/config/connectors": { json: connectors },
  "PUT /node/{nodeID}/config/services": { json: services },
  "PUT /node/{nodeID}/config/ztnagw": { json: {} },
  "PUT /node/{nodeID}/config/gateway": { json: { enabled: false } },
  "PUT /node/{nodeID}/snmp": { json: { enabled: false } },
  "PUT /node/{nodeID}/tag/{tagName}": { json: { value: "prod" } },
  "POST /node/{nodeID}/trigger/{event}": { query: "?wait=1", json: { host: "192.0.2.1" } },
  "PUT /v2/node/{nodeID}/lifecycle-state": { json: { lifecycleState: "maintenance" } },
  "GET /v2/node/{nodeID}/plugin-logs/gateway-details": { query: "?startDate=0&endDate=1" },
  "POST /cluster": { json: { name: "other" } },
  "PUT /cluster/{clusterFQDN}/config/network": { json: {} },
  "PUT /cluster/{clusterFQDN}/tag/{tagName}": { json: { value: "prod" } },
  "POST /v2/service-user": { json: { name: "bot" } },
  "POST /v2/policy": { json: { name: "mine", statements, resources: ["*"] } },
  "PUT /v2/policy/{name}": { json: { statements, resources: ["*"] } },
};
const send = ({ method, path }: Pick<Route, "method" | "path">, key: string | undefined) => {
  const { query = "", json } = REQUESTS[`${method} ${path}`] ?? {};
  return bench.call(method, `${filled(path)}${query}`, { key, ...(json === undefined ? {} : { json }) });
};

const holding = (actions: readonly string[], env?: string): Promise<string> => {
  const conditions = env === undefined ? null : { all: { eq: { "tg:node:tags:env": [env] } } };
  const policy: Policy = {
    name: "test",
    statements: [{ effect: "allow", actions: [...actions] }],
    resources: ["*"],
    conditions,
  };
  return bench.keyHolding([policy]);
};

const isTagged = ({ path }: Route): boolean => /\{(node(ID|Id)|clusterFQDN)\}/.test(path);

it.each(guarded)("%s works with only its own permission, and follows a condition on a tag", async (name, route) => {
  for (const permission of (SERVED[name] ?? route.permissions).map(withEvent)) {
    await restore();
    if (isTagged(route)) {
      const refused = await send(route, await holding([permission], "dev"));
      expect([refused.status, refused.json]).toMatchObject([403, { code: "forbidden" }]);
    }
    const { status, text } = await send(route, await holding([permission], isTagged(route) ? "prod" : undefined));
    // 404: there is no such item. 422, 502, 426: the node's answer, a registry or a WebSocket is missing here.
    expect(name in REQUESTS ? [200] : [200, 404, 422, 426, 502], text).toContain(status);
  }
});
