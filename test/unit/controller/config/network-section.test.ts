import { beforeEach, describe, expect, it } from "vitest";
import { ApiBench, members } from "../../../support/control-plane/api-bench.ts";
import { APPLIANCE, CLUSTER } from "../../../support/control-plane/example-documents.ts";

const FQDN = "pair.example.net";
const NETWORK = APPLIANCE.network;
const INHERITED = CLUSTER.config.network;
const LONGER = { ...NETWORK, future: { deep: [1] } };

let bench: ApiBench;
let uid: string;
let agent: string;
let paths: { node: string; cluster: string };

beforeEach(async () => {
  bench = await ApiBench.create();
  uid = (await bench.fleet.add({ name: "appliance", config: {} })).uid;
  agent = (await bench.fleet.add({ name: "laptop", type: "Agent", config: {} })).uid;
  await bench.fleet.services.clusters.create({ name: "pair" }, "test");
  paths = { node: `/node/${uid}/config/network`, cluster: `/cluster/${FQDN}/config/network` };
});

const stored = async () => (await bench.fleet.node(uid))?.config;
const inherited = async () => (await bench.fleet.cluster(FQDN))?.config;
const put = (path: string, json: unknown, key?: string) =>
  bench.call("PUT", path, key === undefined ? { json } : { json, key });

describe("the section network of a node", () => {
  it("is stored as it is sent, unknown fields too, and shown without its secrets", async () => {
    const answer = await put(paths.node, LONGER);
    expect(answer.status).toBe(200);
    expect(await stored()).toEqual({ network: LONGER });
    const shown = await bench.call("GET", paths.node);
    const [, ipsec] = NETWORK.tunnels;
    expect(shown.json).toEqual({ ...LONGER, tunnels: [NETWORK.tunnels[0], { ...ipsec, psk: "" }] });
    expect(members(members(answer.json)["config"])["network"]).toEqual(shown.json);
    for (const text of [answer.text, shown.text, ...bench.logged]) expect(text).not.toContain("********");
    // What was read may be written back: it changes nothing.
    expect((await put(paths.node, shown.json)).status).toBe(200);
    expect(await stored()).toEqual({ network: LONGER });
    expect((await bench.call("DELETE", paths.node)).status).toBe(200);
    expect((await bench.call("GET", paths.node)).json).toMatchObject({ code: "not-found" });
  });

  it("is refused with a line for each thing that is wrong, and nothing changes", async () => {
    const wrong = {
      interfaces: [
        { nic: "eth0", dhcp: true, ip: "198.51.100.10/28", mtu: 20 },
        { nic: "eth0" },
        { nic: "eth1", mode: "manual", clusterIP: "192.0.2.9" },
        { nic: "eth2", subInterfaces: [{ vlanID: 4095, ip: "10.0.0.1/24", routes: [{ route: "10.1.0.0/16" }] }] },
      ],
      vrfs: [{ name: "a name that is too long", nats: [{ source: "10.0.0.8/8" }] }],
    };
    const first = await put(paths.node, wrong);
    expect([first.status, first.json]).toEqual([
      422,
      [
        "network.interfaces.0.mtu: must be a whole number, 1300..9001",
        "network.interfaces.3.subInterfaces.0.vlanID: must be a whole number, 1..4094",
        "network.interfaces.3.subInterfaces.0.routes.0.next: is required",
        "network.vrfs.0.name: must be 1..15 letters, digits, dots, dashes and underscores",
      ],
    ]);
    // What is wrong between fields is said once each field is right.
    const [eth0, again, eth1] = wrong.interfaces;
    const second = await put(paths.node, {
      interfaces: [{ ...eth0, mtu: 1500 }, again, eth1],
      nats: [{ source: "10.0.0.8/8", toSource: "10.9.0.0/16" }],
    });
    expect([second.status, second.json]).toEqual([
      422,
      [
        "network.interfaces.0.ip: has no place beside dhcp, which gives the address",
        "network.interfaces.1.nic: eth0 is in network.interfaces.0 already",
        "network.interfaces.2.speed: is required with mode manual",
        "network.interfaces.2.clusterIP: is only for the configuration of a cluster",
        "network.nats.0.source: 10.0.0.8/8 has host bits",
        "network.nats.0.toSource: 10.9.0.0/16 has another prefix length than 10.0.0.0/8; only one address may stand for many",
      ],
    ]);
    expect([await stored(), await bench.fleet.users()]).toEqual([{}, ["test"]]);
  });

  it("may name a VRF that only its cluster has", async () => {
    expect((await put(paths.node, { interfaces: [{ nic: "eth1", ip: "192.0.2.1/24", vrf: "shared" }] })).status).toBe(
      200,
    );
  });

  it("keeps the secret of a tunnel that is sent without it, and wants one of a new tunnel", async () => {
    const [, ipsec] = NETWORK.tunnels;
    const { psk: _withheld, ...bare } = ipsec;
    const lines = ["network.tunnels.0.psk: is required with type ipsec"];
    expect((await put(paths.node, { tunnels: [bare] })).json).toEqual(lines);
    await put(paths.node, { tunnels: [{ ...ipsec, psk: "correct horse" }] });
    for (const silent of [bare, { ...bare, psk: "" }]) {
      const answer = await put(paths.node, { tunnels: [{ ...silent, description: "kept" }] });
      expect(answer.status).toBe(200);
      expect(answer.text).not.toContain("correct horse");
      expect(members(await stored())["network"]).toMatchObject({
        tunnels: [{ psk: "correct horse", description: "kept" }],
      });
    }
    expect((await put(paths.node, { tunnels: [{ ...bare, name: "another" }] })).json).toEqual(lines);
    const long = await put(paths.node, { tunnels: [{ ...bare, psk: "hunter2".repeat(200) }] });
    expect(long.json).toEqual(["network.tunnels.0.psk: must have at most 1024 characters"]);
    expect(bench.logged.join("\n")).not.toMatch(/correct horse|hunter2/);
  });

  it("is not an agent's, in any way", async () => {
    for (const method of ["GET", "PUT", "DELETE"]) {
      const json = method === "PUT" ? { json: NETWORK } : {};
      const answer = await bench.call(method, `/node/${agent}/config/network`, json);
      expect([answer.status, answer.json]).toEqual([422, ["network: agents have no network section"]]);
    }
  });
});

describe("the section network of a cluster", () => {
  it("is stored, shown without its secrets, and removed", async () => {
    const [, ipsec] = NETWORK.tunnels;
    const body = { ...INHERITED, tunnels: [ipsec], future: 1 };
    const answer = await put(paths.cluster, body);
    expect([answer.status, await inherited()]).toEqual([200, { network: body }]);
    const shown = await bench.call("GET", paths.cluster);
    expect(shown.json).toEqual({ ...body, tunnels: [{ ...ipsec, psk: "" }] });
    expect(members(answer.json)["config"]).toEqual({ network: shown.json });
    expect((await put(paths.cluster, shown.json)).status).toBe(200);
    expect(await inherited()).toEqual({ network: body });
    const gone = await bench.call("DELETE", paths.cluster);
    expect([gone.status, await inherited()]).toEqual([200, {}]);
    expect((await bench.call("GET", paths.cluster)).status).toBe(404);
    // What changes nothing is not recorded.
    expect(await bench.fleet.users()).toEqual(["test", "admin", "admin"]);
  });

  const own = "is always a member's own, not for a cluster";
  it.each([
    ["a DHCP client", { dhcp: true }, [`dhcp: ${own}`]],
    ["addresses", { ip: "192.0.2.1/24", gateway: "192.0.2.2" }, [`ip: ${own}`, `gateway: ${own}`]],
    ["a VRF", { vrf: "a" }, [`vrf: ${own}`]],
    ["a link", { mtu: 1500, mode: "auto" }, [`mtu: ${own}`, `mode: ${own}`]],
    ["a VIP with a prefix length", { clusterIP: "192.0.2.1/24" }, ["clusterIP: must be the IPv4 address of a machine"]],
  ])("has not %s of an interface", async (_, fields, lines) => {
    const { status, json } = await put(paths.cluster, { interfaces: [{ nic: "eth1", ...fields }] });
    expect([status, json]).toEqual([422, lines.map((line) => `network.interfaces.0.${line}`)]);
    expect(await inherited()).toEqual({});
  });

  it("has no network of containers", async () => {
    const { json } = await put(paths.cluster, { bridgeCIDR: "10.0.0.0/16" });
    expect(json).toEqual([`network.bridgeCIDR: ${own}`]);
  });

  it("takes its own permission on that cluster, and tells a writer no more than he wrote", async () => {
    const key = await bench.keyFor(["nodes::configure:network"], [`tgrn:tg::nodes:cluster/${FQDN}`]);
    expect((await put(paths.cluster, INHERITED, key)).json).toEqual({ fqdn: FQDN, config: { network: INHERITED } });
    expect((await put(paths.node, {}, key)).status).toBe(403);
    expect((await bench.call("GET", paths.cluster, { key })).status).toBe(403);
    expect((await bench.call("DELETE", paths.cluster, { key })).json).toEqual({});
    for (const method of ["GET", "PUT", "DELETE"]) {
      const json = method === "PUT" ? { json: {} } : {};
      expect((await bench.call(method, "/cluster/no.example.net/config/network", json)).status).toBe(404);
    }
  });
});

describe("how a change is to be confirmed", () => {
  const asked = async () => (await bench.fleet.node(uid))?.confirm;

  it.each([
    ["confirm=30", { seconds: 30 }],
    ["confirm=3600", { seconds: 3600 }],
    ["try=10", { tryMinutes: 10 }],
    ["try=60", { tryMinutes: 60 }],
  ])("is said by ?%s, and speaks of one change alone", async (query, wanted) => {
    for (const method of ["PUT", "DELETE"] as const) {
      const json = method === "PUT" ? { json: NETWORK } : {};
      const before = Date.now();
      expect((await bench.call(method, `${paths.node}?${query}`, json)).status).toBe(200);
      const { askedAt = 0, ...rest } = (await asked()) ?? {};
      expect(rest).toEqual(wanted);
      expect(askedAt).toBeGreaterThanOrEqual(before);
      expect(askedAt).toBeLessThanOrEqual(Date.now());
    }
    expect((await put(paths.node, NETWORK)).status).toBe(200);
    expect(await asked()).toBeUndefined();
  });

  it.each(["confirm=29", "confirm=3601", "confirm=soon", "confirm=", "confirm=30.5", "try=20", "try=ten", "try="])(
    "cannot be ?%s, and nothing changes",
    async (query) => {
      expect((await put(paths.node, NETWORK)).status).toBe(200);
      const before = await stored();
      for (const method of ["PUT", "DELETE"] as const) {
        const json = method === "PUT" ? { json: {} } : {};
        const { status } = await bench.call(method, `${paths.node}?${query}`, json);
        expect(status).toBe(422);
      }
      expect([await stored(), await asked()]).toEqual([before, undefined]);
    },
  );
});
