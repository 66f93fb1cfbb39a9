import { beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { canonicalAction } from "../../../../src/controller/access/policies/permissions.ts";
import type { Route } from "../../../../src/controller/http/route.ts";
import { testCertificate } from "../../../support/certificates.ts";
import { ApiBench, members } from "../../../support/control-plane/api-bench.ts";
import { DOMAIN, ORG } from "../../../support/control-plane/fleet-stage.ts";
import { BEYOND, LATER, SERVED } from "../../../support/control-plane/specified-operations.ts";

/** A valid body of an operation, and where it is read back: a path, and the place in the answer. `{id}` is of the answer to the write. */
interface Sample {
  readonly json: Readonly<Record<string, unknown>>;
  readonly read?: readonly [path: string, ...place: string[]];
  /** Value that is read back, if it is not the body. */
  readonly shown?: object;
  /** Prefix of the lines of a refusal. */
  readonly root?: string;
}

const ID = "6f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d01";
const OTHER = "5f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d02";
const NODE = "/node/{nodeID}";
const CONTAINER = { id: ID, name: "app", execType: "service", image: { repository: "acme.example/app", tag: "1" } };
const IMAGE = { id: ID, displayName: "Windows", location: "/images/win.qcow2", os: "win10" };
const VOLUME = { name: "any", encrypted: true };
const ALERT = {
  enabled: true,
  thresholds: [
    { id: ID, name: "Load", telemetry: "cpu", max: 95.5, exceededWindow: 10, exceededWindowUnit: "minutes" },
  ],
};
const POLICY = {
  name: "readers",
  description: "",
  statements: [{ effect: "allow", actions: ["nodes::read", "events::read"] }],
  resources: ["tgrn:tg::nodes:node/b", "*"],
};
const ACL = { line: 20, protocol: "tcp", source: "10.50.0.0/16", dest: "10.77.0.0/16", ports: "443", action: "allow" };
const SERVICE = {
  name: "db",
  enabled: true,
  host: "Db.Lan.Example",
  port: 5432,
  protocol: "tcp",
  description: " a ",
  index: 4,
};
const CONNECTOR = {
  enabled: true,
  port: 8080,
  protocol: "tcp",
  node: "Two",
  service: "127.0.0.1:80",
  index: 3,
  nic: "any",
};
const PORTS = [
  { uid: "b", protocol: "TCP", iface: "eth0", hostPort: 81, containerPort: 8081 },
  { uid: "a", protocol: "UDP", iface: "eth0", hostPort: 80, containerPort: 8080 },
];
const NETWORK = {
  darkMode: false,
  interfaces: [
    {
      nic: "ens192",
      ip: "192.168.10.2/24",
      gateway: "",
      vrf: null,
      dns: ["192.0.2.54", "192.0.2.53"],
      mode: "auto",
      mtu: 1500,
    },
  ],
  vrfs: [{ name: "guest", forwarding: true, acls: [ACL, { ...ACL, line: 10 }] }],
};
const { cert, key } = await testCertificate({ hosts: ["one.example.net"] });
const CERTIFICATE = { fqdn: "one.example.net", certificateBody: cert, privateKey: key };
const PUBLIC_KEY = `${"A".repeat(43)}=`;
const POINT = `BA${"A".repeat(85)}=`;
const DISK = { name: "readers", deviceType: "disk", deviceBus: "virtio", size: 2 ** 40, encrypted: false } as const;
const SAMPLES: Readonly<Record<string, Sample>> = {
  "PUT /node/{nodeID}": { json: { state: "INACTIVE" }, read: [NODE] },
  "PUT /node/{nodeID}/config/alert": {
    json: ALERT,
    read: [NODE, "config", "alert"],
    root: "alert.",
  },
  "PUT /node/{nodeID}/config/cluster": {
    json: { enabled: true, host: "10.0.0.2", port: 9000, statusPort: 80 },
    read: [NODE, "config", "cluster"],
    root: "cluster.",
  },
  "PUT /node/{nodeID}/config/network": { json: NETWORK, read: [NODE, "config", "network"], root: "network." },
  "PUT /node/{nodeID}/config/connectors": {
    json: { connectors: [{ id: ID, ...CONNECTOR }] },
    read: [NODE, "config", "connectors"],
    root: "connectors.",
  },
  "POST /v2/node/{nodeID}/config/connectors": {
    json: { ...CONNECTOR, port: 8081, nic: "", localIp: null },
    read: [NODE, "config", "connectors", "items", "{id}"],
  },
  "PUT /v2/node/{nodeID}/config/connectors/{connectorID}": {
    json: { ...CONNECTOR, description: "" },
    read: [NODE, "config", "connectors", "items", "{id}"],
  },
  "PUT /node/{nodeID}/config/services": {
    json: {
      services: [
        { id: ID, ...SERVICE },
        { ...SERVICE, id: OTHER, name: "cache" },
      ],
    },
    read: [NODE, "config", "services"],
    root: "services.",
  },
  "POST /v2/node/{nodeID}/config/services": {
    json: { ...SERVICE, name: "Other", sourceInterface: "" },
    read: [NODE, "config", "services", "items", "{id}"],
  },
  "PUT /v2/node/{nodeID}/config/services/{serviceID}": {
    json: { ...SERVICE, host: "10.0.0.7" },
    read: [NODE, "config", "services", "items", "{id}"],
  },
  "PUT /node/{nodeID}/config/ztnagw": {
    json: { enabled: true, host: "Gw.Example.net", port: 8444 },
    read: [NODE, "config", "apigw"],
    root: "apigw.",
  },
  "PUT /node/{nodeID}/config/gateway": {
    json: {
      enabled: true,
      type: "public",
      host: "Gw.Example.net",
      port: 8443,
      cert: "",
      udpPort: null,
      maxmbps: 0,
      monitorHops: false,
    },
    read: [NODE, "config", "gateway"],
    root: "gateway.",
  },
  "PUT /node/{nodeID}/snmp": {
    json: { enabled: false, interface: "ens192", port: 1161, engineId: "0A1" },
    read: [NODE, "config", "snmp"],
    root: "snmp.",
  },
  "PUT /node/{nodeID}/tag/{tagName}": {
    json: { value: "Rome_2" },
    read: [NODE, "tags"],
    shown: { site: "berlin", any: "Rome_2" },
  },
  "PUT /v2/node/{nodeID}/lifecycle-state": { json: { lifecycleState: "maintenance" }, read: [NODE] },
  "POST /v2/node/{nodeID}/data-store/mkdir": { json: { filename: "a/B" } },
  "POST /v2/node/{nodeID}/data-store/http-download": { json: { uri: "https://files.example/x", filename: "x" } },
  "POST /v2/node/{nodeID}/data-store/http-upload": { json: { filePath: "x", uri: "https://files.example/x" } },
  "POST /v2/node/{nodeID}/data-store/s3-download": { json: { uri: "s3://bucket/x", location: "x" } },
  "POST /v2/node/{nodeID}/data-store/s3-upload": { json: { filePath: "x", bucketDest: "s3://bucket/x" } },
  "POST /v2/node/{nodeID}/kvm/image": { json: { ...IMAGE, id: OTHER }, read: ["/v2/node/{nodeID}/kvm/image/{id}"] },
  "POST /cluster": { json: { name: "trio" }, read: ["/cluster/trio.example.net"] },
  "PUT /cluster/{clusterFQDN}/config/network": {
    json: { vrfs: NETWORK.vrfs },
    read: ["/cluster/{clusterFQDN}/config/network"],
    root: "network.",
  },
  "PUT /cluster/{clusterFQDN}/tag/{tagName}": {
    json: { value: "Rome_2" },
    read: ["/cluster/{clusterFQDN}", "tags"],
    shown: { any: "Rome_2" },
  },
  "POST /v2/service-user": { json: { name: "CI-1", policies: ["readers"] }, read: ["/v2/service-user/CI-1"] },
  "POST /v2/policy": { json: { ...POLICY, name: "Others" }, read: ["/v2/policy/Others"] },
  "PUT /v2/policy/{name}": { json: { ...POLICY, description: " x " }, read: ["/v2/policy/readers"] },
  "POST /v2/node/{nodeID}/exec/container": {
    json: { ...CONTAINER, id: OTHER, name: "Other", stopTime: "20", description: "" },
    read: ["/v2/node/{nodeID}/exec/container/{id}"],
  },
  "PUT /v2/node/{nodeID}/exec/container/{containerID}": {
    json: { ...CONTAINER, stopTime: 7 },
    read: ["/v2/node/{nodeID}/exec/container/{containerID}"],
  },
  "PUT /v2/node/{nodeID}/exec/container/{containerID}/config": {
    json: { portMappings: PORTS },
    read: ["/v2/node/{nodeID}/exec/container/{containerID}/port-mapping"],
    shown: PORTS,
  },
  "POST /v2/node/{nodeID}/exec/volume": {
    json: { name: "Logs", encrypted: false },
    read: ["/v2/node/{nodeID}/exec/volume/Logs"],
  },
  "PUT /node/{nodeID}/keys/{keyName}": {
    json: { kty: "EC", crv: "X25519", x: `${"A".repeat(43)}=` },
    read: [NODE, "keys"],
    shown: { identity: PUBLIC_KEY, overlay: POINT, wireguard: PUBLIC_KEY, any: PUBLIC_KEY },
  },
  "PUT /node/{nodeID}/tags": { json: { tags: { Site: "Rome", a: "_" } }, read: [NODE] },
  "PUT /cluster/{clusterFQDN}/tags": { json: { tags: { Site: "Rome", a: "_" } }, read: ["/cluster/{clusterFQDN}"] },
  "PUT /node/{nodeID}/config/snmp": {
    json: { enabled: false, interface: "ens192", port: 1161, engineId: "0A1" },
    read: [NODE, "config", "snmp"],
    root: "snmp.",
  },
  "PUT /cluster/{clusterFQDN}/config/ztnagw": {
    json: { wireguardEnabled: true, wireguardEndpoint: "Wg.Example.net", wireguardPort: 51_820, host: "" },
    read: ["/cluster/{clusterFQDN}", "config", "apigw"],
    root: "apigw.",
  },
  "PUT /v2/node/{nodeID}/exec/limit": {
    json: { cpuMax: 50, memHigh: 512, memMax: 1024, ioRbps: 0, ioRiops: 0, ioWbps: 0, ioWiops: 0 },
    read: ["/v2/node/{nodeID}/exec/limit"],
  },
  "PUT /v2/node/{nodeID}/exec/volume/{volumeName}": {
    json: VOLUME,
    read: ["/v2/node/{nodeID}/exec/volume/{volumeName}"],
  },
  "PUT /org/mine": {
    json: { name: "Acme", technicalContact: { name: " A ", phone: null, email: "a@b.c" }, supportable: false },
    read: ["/org/mine"],
  },
  "PUT /org/auth": { json: { idp_provider: "local", subdomain: "Acme.example.net" }, read: ["/org/auth"] },
  "PUT /domain/{domain}/config/alert": {
    json: ALERT,
    read: ["/domain/{domain}", "config", "alert"],
    root: "alert.",
  },
  "PUT /domain/{domain}/config/apigw": {
    json: { gateway_node: "Two", new_cloud_gateway: false },
    read: ["/domain/{domain}", "config", "apigw"],
    root: "apigw.",
  },
  "POST /v2/certificates": { json: CERTIFICATE },
  "PUT /v2/certificates/{fqdn}": { json: CERTIFICATE },
  "PUT /v2/service-user/{name}": { json: { policyIds: [], status: "inactive" }, read: ["/v2/service-user/{name}"] },
  "POST /v2/node/{nodeID}/kvm/volume": {
    json: { ...DISK, name: "Iso.1", deviceType: "cdrom", path: "" },
    read: ["/v2/node/{nodeID}/kvm/volume/Iso.1"],
  },
  "PUT /v2/node/{nodeID}/kvm/volume/{name}": {
    json: { ...DISK, size: 0 },
    read: ["/v2/node/{nodeID}/kvm/volume/{name}"],
  },
  "PUT /v2/node/{nodeID}/kvm/image/{id}": {
    json: { displayName: " W ", location: "other.iso", os: "Win 11" },
    read: ["/v2/node/{nodeID}/kvm/image/{id}"],
  },
};

/** An answer to a write; a creation has the id. */
const Answered = z.object({ id: z.string().optional() });
/** Replies of the node to requests of the data store; others start a task. */
const REPLIES: ReadonlyMap<unknown, object> = new Map([
  ["IMAGE_INFO", { bytes: 1 }],
  ["MKDIR", {}],
]);

const bodies = new Set(Object.keys(SAMPLES));
const served = Object.entries({ ...SERVED, ...BEYOND });
const { routes } = await ApiBench.create();
const label = ({ method, path }: Route): string => `${method} ${path}`;
const routeOf = (operation: string): Route => {
  const found = routes.find((route) => label(route) === operation);
  if (found === undefined) throw new Error(`${operation} has no route`);
  return found;
};

describe("the specification", () => {
  const later = Object.values(LATER).flat();

  it("has 161 operations, each either served or left to later work", () => {
    const all = [...Object.keys(SERVED), ...later];
    expect([all.length, new Set(all).size]).toEqual([161, 161]);
  });

  it.each(served)("and clients have %s, under its permissions", (operation, permissions) => {
    expect(routeOf(operation).permissions).toEqual(permissions.map(canonicalAction));
  });

  it.each(later)("%s is not served; move it to SERVED when it is", (operation) => {
    expect(routes.map(label)).not.toContain(operation);
  });

  it("has a sample of every body with a form of its own", () => {
    const taking = served.map(([operation]) => operation).filter((operation) => routeOf(operation).body !== undefined);
    // A trigger's body depends on the event, and that of this DELETE is optional.
    const free = ["POST /node/{nodeID}/trigger/{event}", "DELETE /v2/node/{nodeID}/data-store"];
    expect(taking.filter((operation) => !bodies.has(operation))).toEqual(free);
  });
});

let bench: ApiBench;
let uid: string;
/** Undoes what a test has changed. */
let restore: () => Promise<void>;

beforeAll(async () => {
  bench = await ApiBench.create();
  const items = (item: object) => ({ version: 2, items: { [ID]: { ...item, id: ID } } });
  const config = { connectors: items(CONNECTOR), services: items(SERVICE) };
  uid = (await bench.fleet.add({ name: "one", config })).uid;
  await bench.fleet.add({ name: "Two", config: {} });
  await bench.fleet.services.clusters.create({ name: "pair" }, "test");
  await bench.call("POST", "/v2/policy", { json: POLICY });
  await bench.call("POST", "/v2/service-user", { json: { name: "readers" } });
  await bench.call("POST", "/v2/certificates", { json: CERTIFICATE });
  await bench.call("POST", `/v2/node/${uid}/exec/container`, { json: CONTAINER });
  await bench.call("POST", `/v2/node/${uid}/exec/volume`, { json: VOLUME });
  await bench.deps.machineVolumes.add(uid, DISK, "test");
  await bench.deps.images.add(uid, IMAGE, "test");
  bench.fleet.script = ({ body }) => Promise.resolve(REPLIES.get(members(body)["action"]) ?? { id: ID });
  restore = await bench.keep();
});

const filled = (path: string, id = ID): string =>
  path
    .replace(/\{node(ID|Id)\}/, uid)
    .replace("{fqdn}", "one.example.net")
    .replace("{clusterFQDN}", "pair.example.net")
    .replace(/\{(connectorID|serviceID|containerID|id)\}/, id)
    .replace("{domain}", DOMAIN)
    .replace("{event}", "tg-ping")
    .replace("{name}", "readers")
    .replaceAll(/\{\w+\}/g, "any");

/** The resource that a refusal names. */
function resourceOf(method: string, path: string): string {
  if (path.includes("{clusterFQDN}")) return "tgrn:tg::nodes:cluster/pair.example.net";
  if (path === "/org/auth" || /^\/audit\/\w+\/(config|user)$/.test(path)) return `tgrn:tg::orgs:org/${ORG}`;
  if (/^\/(org|domain)\//.test(path)) return "tgrn:tg::domains:domain/example.net";
  if (/\{node(ID|Id)\}/.test(path)) return `tgrn:tg::nodes:node/${uid}`;
  if (path.includes("{reponame}")) return "tgrn:tg::repositories:repository/any";
  // Creation, and a license, concern the organization.
  if ((method === "POST" && !path.includes("{")) || path === "/node/license") return "*";
  const kind = [
    ["/v2/policy", "permissions:policy/"],
    ["/v2/service-user", "users:service-user/"],
    ["/v2/certificates", "certificates:certificate/"],
    ["/repositories", "repositories:repository/"],
    ["/cluster", "nodes:cluster/"],
    ["", "nodes:node/"],
  ].find(([start = ""]) => path.startsWith(start))?.[1];
  if (path.startsWith("/v2/certificates/")) return `tgrn:tg::${kind}one.example.net`;
  return `tgrn:tg::${kind}${path.startsWith("/v2") && path.includes("{name}") ? "readers" : "*"}`;
}

const split = (operation: string): readonly [method: string, path: string] => {
  const [method = "", path = ""] = operation.split(" ");
  return [method, path];
};

describe.each(served)("%s", (operation, permissions) => {
  const [method, path] = split(operation);
  const { body, query } = routeOf(operation);
  const sample = SAMPLES[operation];

  it("wants a credential", async () => {
    const answer = await bench.call(method, filled(path), { key: undefined });
    expect([answer.status, answer.json]).toMatchObject([401, { code: "unauthorized" }]);
  });

  it("names the permission and the resource to a caller who lacks it", async () => {
    const needed = permissions.map((name) => canonicalAction(name).replace("{event}", "tg-ping"));
    const answer = await bench.call(method, filled(path), { key: await bench.keyFor(["*"], ["*"], needed) });
    const details = { action: needed[0], resource: resourceOf(method, path) };
    expect([answer.status, answer.json]).toMatchObject([403, { code: "forbidden", details }]);
  });

  it("refuses an unknown query parameter with the nearest name", async () => {
    const [known] = Object.keys(query?.shape ?? {}).map((name) => name.replace("[]", ""));
    const wrong = known === undefined ? "x" : `${known}x`;
    const { status, json } = await bench.call(method, `${filled(path)}?${wrong}=1`);
    const hint = known === undefined ? "this path has none" : `did you mean '${known}'?`;
    expect([status, json]).toEqual([422, [`query: unknown parameter '${wrong}'; ${hint}`]]);
  });

  if (method !== "GET") {
    it("takes the body null for none", async () => {
      const { status, json } = await bench.call(method, filled(path), {
        body: "null",
        headers: { "content-type": "" },
      });
      // A repository needs a registry, which this bench lacks.
      expect([200, 404, 422]).toContain(status);
      if (sample !== undefined) expect([status, json]).toMatchObject([422, [expect.any(String)]]);
    });
  }

  if (method === "DELETE" && body === undefined) {
    it("ignores its body", async () => {
      const statuses = [];
      for (const sent of [undefined, '{"uid":"x"}', "{"]) {
        await restore();
        const { status } = await bench.call(method, filled(path), sent === undefined ? {} : { body: sent });
        statuses.push(status);
      }
      expect(new Set(statuses).size).toBe(1);
    });
  }

  if (sample !== undefined) {
    const { json: valid, read, shown = valid, root = "" } = sample;

    it("leads each line of a refusal by the path of the field", async () => {
      await restore();
      for (const name of Object.keys(valid)) {
        const json = { ...valid, [name]: { "not this": 1 } };
        const answer = await bench.call(method, filled(path), { json });
        expect([answer.status, answer.json]).toEqual([422, expect.any(Array)]);
        expect(answer.json).toContainEqual(expect.stringMatching(new RegExp(`^${root}${name}(\\.[\\w. -]+)?: `)));
      }
    });

    it("answers what was written, letter for letter, and so does a read", async () => {
      await restore();
      // The legacy form does not replace the other one.
      if (path.startsWith("/node/") && /connectors|services/.test(path)) await bench.call("DELETE", filled(path));
      const answer = await bench.call(method, filled(path), { json: valid });
      expect([answer.status, answer.json]).toEqual([200, expect.anything()]);
      if (read === undefined) return;
      const [at, ...place] = read;
      const { id = ID } = Answered.parse(answer.json);
      let found: unknown = (await bench.call("GET", filled(at, id))).json;
      for (const step of place) found = members(found)[step.replace("{id}", id)];
      expect(found).toMatchObject(shown);
      // A configuration has no fields that nobody wrote.
      const fields = new Set(["id", ...Object.keys(shown)]);
      if (place.length > 0) expect(Object.keys(members(found)).filter((name) => !fields.has(name))).toEqual([]);
    });
  }
});
