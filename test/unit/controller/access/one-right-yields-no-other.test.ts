import { beforeEach, describe, expect, it, test } from "vitest";
import { tgrn } from "../../../../src/controller/access/policies/permissions.ts";
import { ApiBench } from "../../../support/control-plane/api-bench.ts";
import { nodeRecord } from "../../../support/control-plane/fleet-stage.ts";

const HERE = nodeRecord({ name: "here", config: {} });
const THERE = nodeRecord({ name: "there", config: {} });
const CLUSTER = "pair.example.net";
const POLICY = { name: "everything", statements: [{ effect: "allow", actions: ["nodes::delete"] }], resources: ["*"] };
const connector = (node: string, id = "6f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d01") => ({
  id,
  name: "web",
  port: 8080,
  protocol: "tcp",
  node,
  service: "127.0.0.1:80",
});
const container = (repository: string) => ({ name: "app", execType: "service", image: { repository, tag: "1" } });

let bench: ApiBench;

beforeEach(async () => {
  bench = await ApiBench.create();
  await bench.fleet.add(HERE);
  await bench.fleet.add(THERE);
  await bench.fleet.services.clusters.create({ name: "pair" }, "test");
  await bench.call("POST", "/v2/policy", { json: POLICY });
  await bench.call("POST", "/v2/service-user", { json: { name: "root", policies: ["everything"] } });
  await bench.call("POST", "/v2/service-user", { json: { name: "plain" } });
});

interface Way {
  readonly what: string;
  /** Permissions of the caller, and their resources. */
  readonly held: readonly string[];
  readonly on: readonly string[];
  readonly request: readonly [method: string, path: string, json?: unknown];
  /** The missing permission, and its resource. */
  readonly missing: string;
  readonly resource: string;
  /** Sent beforehand as the admin. */
  readonly before?: readonly [method: string, path: string, json?: unknown];
}

const connectors = `/node/${HERE.uid}/config/connectors`;
const onHere = [tgrn.node(HERE.uid)];
const CONFIGURE = "nodes::configure:connectors";
const toThere = { held: [CONFIGURE], on: onHere, missing: CONFIGURE } as const;
const legacy = (node: string) => ({ connectors: [connector(node)] });
const toV2 = ["POST", `/v2${connectors}/upgrade`] as const;

const WAYS: readonly Way[] = [
  {
    what: "users::modify, the credential of a user with more",
    held: ["users::modify"],
    on: ["*"],
    request: ["POST", "/v2/service-user/root/token"],
    missing: "permissions::modify",
    resource: tgrn.policy("everything"),
  },
  {
    what: "users::modify, a user with any policy",
    held: ["users::modify"],
    on: ["*"],
    request: ["POST", "/v2/service-user", { name: "mine", policies: ["everything"] }],
    missing: "permissions::modify",
    resource: tgrn.policy("everything"),
  },
  {
    what: "users::modify, a policy for an existing user",
    held: ["users::modify"],
    on: ["*"],
    request: ["PUT", "/v2/service-user/plain", { policyIds: ["everything"] }],
    missing: "permissions::modify",
    resource: tgrn.policy("everything"),
  },
  {
    what: "users::modify, the loss of a policy",
    held: ["users::modify"],
    on: ["*"],
    request: ["PUT", "/v2/service-user/root", {}],
    missing: "permissions::modify",
    resource: tgrn.policy("everything"),
  },
  {
    what: "permissions::modify on one policy, a built-in one",
    held: ["users::modify", "permissions::modify"],
    on: [tgrn.policy("everything"), "tgrn:tg::users:service-user/*"],
    request: ["PUT", "/v2/service-user/plain", { policyIds: ["builtin-tg-admin"] }],
    missing: "permissions::modify",
    resource: tgrn.policy("builtin-tg-admin"),
  },
  {
    what: "permissions::modify on one policy, a user with another",
    held: ["users::modify", "permissions::modify"],
    on: [tgrn.policy("other"), "tgrn:tg::users:service-user/*"],
    request: ["POST", "/v2/service-user/root/token"],
    missing: "permissions::modify",
    resource: tgrn.policy("everything"),
  },
  {
    what: "nodes::manage on a node, a place in a cluster",
    held: ["nodes::manage"],
    on: ["*"],
    request: ["PUT", `/node/${HERE.uid}`, { cluster: CLUSTER }],
    missing: "nodes::cluster",
    resource: tgrn.cluster(CLUSTER),
  },
  {
    what: "nodes::manage on a node, which clusters there are",
    held: ["nodes::manage"],
    on: onHere,
    request: ["PUT", `/node/${HERE.uid}`, { cluster: "absent.example.net" }],
    missing: "nodes::cluster",
    resource: tgrn.cluster("absent.example.net"),
  },
  ...[THERE.name, THERE.fqdn, THERE.uid, "nobody"].map((name) => ({
    what: `connectors of one node, another's services by ${name}, as a whole`,
    held: [CONFIGURE],
    on: onHere,
    missing: CONFIGURE,
    request: ["PUT", connectors, legacy(name)] as const,
    resource: tgrn.node(name),
  })),
  {
    what: "connectors of one node, another's services, as an item",
    ...toThere,
    request: ["POST", `/v2${connectors}`, connector(THERE.name)],
    resource: tgrn.node(THERE.name),
  },
  {
    what: "connectors of one node, another's services, by an upgraded section",
    ...toThere,
    before: toV2,
    request: ["POST", `/v2${connectors}`, connector(THERE.name)],
    resource: tgrn.node(THERE.name),
  },
  {
    what: "connectors of one node, another port of another's",
    ...toThere,
    before: ["PUT", connectors, legacy(THERE.name)],
    request: ["PUT", connectors, { connectors: [{ ...connector(THERE.name), service: "127.0.0.1:22" }] }],
    resource: tgrn.node(THERE.name),
  },
  {
    what: "connectors of one node, enabling what was disabled",
    ...toThere,
    before: ["PUT", connectors, { connectors: [{ ...connector(THERE.name), enabled: false }] }],
    request: ["PUT", connectors, legacy(THERE.name)],
    resource: tgrn.node(THERE.name),
  },
  ...["registry.example.net:5000/example.net/secret", "example.net/secret"].map((repository) => ({
    what: `containers of a node, the image ${repository}`,
    held: ["node-exec::modify"],
    on: ["*"],
    request: ["POST", `/v2/node/${HERE.uid}/exec/container`, container(repository)] as const,
    missing: "repositories::read",
    resource: tgrn.repository("example.net/secret"),
  })),
  {
    what: "pings, a file in the data store",
    held: ["nodes::service:tg-tcpdump"],
    on: ["*"],
    request: ["POST", `/node/${HERE.uid}/trigger/tg-tcpdump`, { file: "/x.pcap" }],
    missing: "nodes::service:datastore-manager",
    resource: tgrn.node(HERE.uid),
  },
  ...["*", "nodes::*", "nodes::service:tg-capture", "nodes::remote-execute", "node-advanced::*"].map((held) => ({
    what: `${held}, a capture of whole packets`,
    held: [held],
    on: ["*"],
    request: ["POST", `/node/${HERE.uid}/trigger/tg-capture`, { action: "start", iface: "eth0" }] as const,
    missing: "node-advanced::service:tg-capture",
    resource: tgrn.node(HERE.uid),
  })),
  {
    what: "alerts, the release of a held identity",
    held: ["alerts::read"],
    on: ["*"],
    request: ["DELETE", `/v2/alert/${HERE.uid}/Identity%20Shared`],
    missing: "nodes::manage",
    resource: tgrn.node(HERE.uid),
  },
];

test.each(WAYS)("$what: refused", async ({ held, on, request, missing, resource, before }) => {
  if (before !== undefined) await bench.call(before[0], before[1], { json: before[2] });
  const config = (await bench.fleet.node(HERE.uid))?.config;
  const [method, path, json] = request;
  const answer = await bench.call(method, path, { key: await bench.keyFor(held, on), json });
  expect([answer.status, answer.json]).toMatchObject([
    403,
    { code: "forbidden", details: { action: missing, resource } },
  ]);
  expect((await bench.fleet.node(HERE.uid))?.config).toEqual(config);
});

describe("who holds what is needed", () => {
  const both = () => bench.keyFor([CONFIGURE], [tgrn.node(HERE.uid), tgrn.node(THERE.uid)]);

  it("makes a credential of a user with the policies that they may give", async () => {
    const key = await bench.keyFor(["users::modify", "permissions::modify"]);
    expect((await bench.call("POST", "/v2/service-user/root/token", { key })).status).toBe(200);
  });

  it("makes a credential of a user without any policy", async () => {
    const key = await bench.keyFor(["users::modify"]);
    expect((await bench.call("POST", "/v2/service-user/plain/token", { key })).status).toBe(200);
    expect((await bench.call("POST", "/v2/service-user/absent/token", { key })).status).toBe(404);
  });

  it("joins a cluster, and leaves it without", async () => {
    const key = await bench.keyFor(["nodes::manage", "nodes::cluster"], [...onHere, tgrn.cluster(CLUSTER)]);
    const path = `/node/${HERE.uid}`;
    expect((await bench.call("PUT", path, { key, json: { cluster: CLUSTER } })).status).toBe(200);
    const manager = await bench.keyFor(["nodes::manage"]);
    expect((await bench.call("PUT", path, { key: manager, json: { cluster: CLUSTER } })).status).toBe(200);
    expect((await bench.call("PUT", path, { key: manager, json: { cluster: null } })).status).toBe(200);
  });

  it("connects two nodes", async () => {
    expect((await bench.call("PUT", connectors, { key: await both(), json: legacy(THERE.name) })).status).toBe(200);
    const unknown = await bench.call("PUT", connectors, { json: legacy("nobody") });
    expect(unknown.status).toBe(200);
  });

  it("keeps a connector that somebody else made, and connects a node to itself", async () => {
    await bench.call("PUT", connectors, { json: legacy(THERE.name) });
    const key = await bench.keyFor([CONFIGURE], onHere);
    const json = {
      connectors: [
        { ...connector(THERE.name), port: 8081 },
        { ...connector("here", "5f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d02"), name: "own" },
      ],
    };
    expect((await bench.call("PUT", connectors, { key, json })).status).toBe(200);
    expect((await bench.call("POST", toV2[1], { key })).status).toBe(200);
  });

  it("runs public images", async () => {
    const key = await bench.keyFor(["node-exec::modify"]);
    const path = `/v2/node/${HERE.uid}/exec/container`;
    const answer = await bench.call("POST", path, { key, json: container("docker.io/library/alpine") });
    expect(answer.status).toBe(200);
  });
});

test("a service user does not take the name of an API key", async () => {
  const answer = await bench.call("POST", "/v2/service-user", { json: { name: "admin" } });
  expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(/^name: .*admin/)]]);
});
