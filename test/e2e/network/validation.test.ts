import { join } from "node:path";
import { expect, test } from "vitest";
import { freePort, registerNode, startAgent, startController } from "../../support/machine/programs.ts";
import { tempDir } from "../../support/temp-dir.ts";

/** An invalid section, and the path in the refusal. */
interface Refused {
  readonly why: string;
  readonly section: unknown;
  readonly path: string;
}

const nic = (fields: object): object => ({ nic: "eth0", ip: "192.0.2.2/24", ...fields });
const one = (fields: object): object => ({ interfaces: [nic(fields)] });
const acl = (fields: object): object => ({
  acls: [{ protocol: "tcp", source: "0.0.0.0/0", dest: "10.0.0.0/8", action: "allow", ...fields }],
});
const rule = (fields: object): object => ({
  rules: [{ protocol: "tcp", source: "private", dest: "public", action: "drop", ...fields }],
});
const vlan = (fields: object): object => one({ subInterfaces: [{ vlanID: 7, ip: "10.7.0.1/24", ...fields }] });
const AT = "network.interfaces.0";

const REFUSED: readonly Refused[] = [
  { why: "no section", section: [], path: "network" },
  { why: "no list", section: { interfaces: {} }, path: "network.interfaces" },
  { why: "no interface", section: { interfaces: ["eth0"] }, path: AT },
  { why: "an interface without a name", section: { interfaces: [{ ip: "192.0.2.2/24" }] }, path: `${AT}.nic` },
  { why: "a name that no link can have", section: one({ nic: "eth0; reboot" }), path: `${AT}.nic` },
  { why: "a name that is an option", section: one({ nic: "-batch" }), path: `${AT}.nic` },
  { why: "a name that is a path", section: one({ nic: "../all" }), path: `${AT}.nic` },
  { why: "a name of 16 characters", section: one({ nic: "a".repeat(16) }), path: `${AT}.nic` },
  {
    why: "one interface twice",
    section: { interfaces: [nic({}), nic({ ip: "192.0.2.3/24" })] },
    path: "network.interfaces.1.nic",
  },
  { why: "an address without its prefix", section: one({ ip: "192.0.2.2" }), path: `${AT}.ip` },
  { why: "a prefix that is too long", section: one({ ip: "192.0.2.2/33" }), path: `${AT}.ip` },
  { why: "an address that is none", section: one({ ip: "192.0.2.256/24" }), path: `${AT}.ip` },
  { why: "an address beside dhcp", section: one({ dhcp: true }), path: `${AT}.ip` },
  { why: "a gateway that is none", section: one({ gateway: "router" }), path: `${AT}.gateway` },
  { why: "a resolver that is none", section: one({ dns: ["192.0.2.53", "dns"] }), path: `${AT}.dns.1` },
  { why: "an MTU below 1300", section: one({ mtu: 1299 }), path: `${AT}.mtu` },
  { why: "an MTU above 9001", section: one({ mtu: 9002 }), path: `${AT}.mtu` },
  { why: "manual without a speed", section: one({ mode: "manual", duplex: "full" }), path: `${AT}.speed` },
  { why: "a speed that no card has", section: one({ mode: "manual", speed: 42, duplex: "full" }), path: `${AT}.speed` },
  { why: "a duplex that is none", section: one({ mode: "manual", speed: 100, duplex: "both" }), path: `${AT}.duplex` },
  { why: "a mode that is none", section: one({ mode: "fast" }), path: `${AT}.mode` },
  { why: "VLAN 0", section: vlan({ vlanID: 0 }), path: `${AT}.subInterfaces.0.vlanID` },
  { why: "VLAN 4095", section: vlan({ vlanID: 4095 }), path: `${AT}.subInterfaces.0.vlanID` },
  { why: "a VLAN without an address", section: vlan({ ip: undefined }), path: `${AT}.subInterfaces.0.ip` },
  {
    why: "a VLAN route without a next hop",
    section: vlan({ routes: [{ route: "10.8.0.0/16" }] }),
    path: `${AT}.subInterfaces.0.routes.0.next`,
  },
  { why: "a route to nothing", section: one({ routes: [{ next: "192.0.2.9" }] }), path: `${AT}.routes.0.route` },
  {
    why: "a metric of 0",
    section: { routes: [{ dest: "10.0.0.0/8", dev: "eth0", metric: 0 }] },
    path: "network.routes.0.metric",
  },
  {
    why: "a metric of 201",
    section: { routes: [{ dest: "10.0.0.0/8", dev: "eth0", metric: 201 }] },
    path: "network.routes.0.metric",
  },
  { why: "a route that leads nowhere", section: { routes: [{ dest: "10.0.0.0/8" }] }, path: "network.routes.0" },
  { why: "line 0", section: acl({ line: 0 }), path: "network.acls.0.line" },
  { why: "line 32769", section: rule({ line: 32_769 }), path: "network.rules.0.line" },
  { why: "ports of ICMP", section: acl({ protocol: "icmp", ports: "80" }), path: "network.acls.0.ports" },
  { why: "ports the wrong way round", section: acl({ ports: "2000-1000" }), path: "network.acls.0.ports" },
  { why: "port 65536", section: rule({ ports: "65536" }), path: "network.rules.0.ports" },
  { why: "an action that is none", section: acl({ action: "ignore" }), path: "network.acls.0.action" },
  { why: "a protocol that is none", section: acl({ protocol: "sctp" }), path: "network.acls.0.protocol" },
  {
    why: "a rule of nft in a source",
    section: rule({ source: "10.0.0.0/8 accept; drop" }),
    path: "network.rules.0.source",
  },
  { why: "a forward to nowhere", section: rule({ action: "forward" }), path: "network.rules.0" },
  { why: "a translation to nowhere", section: rule({ action: "dnat" }), path: "network.rules.0.dnat" },
  {
    why: "a hardware address that is none",
    section: rule({ action: "forward", iface: "eth0", dmac: "zz" }),
    path: "network.rules.0.dmac",
  },
  {
    why: "blocks of different lengths",
    section: { nats: [{ source: "10.0.0.0/24", toSource: "10.1.0.0/25" }] },
    path: "network.nats.0",
  },
  {
    why: "host bits in a translation",
    section: { nats: [{ source: "10.0.0.8/8", toSource: "10.1.0.0/8" }] },
    path: "network.nats.0.source",
  },
  { why: "two VRFs of one name", section: { vrfs: [{ name: "red" }, { name: "red" }] }, path: "network.vrfs.1.name" },
  { why: "a VRF named default", section: { vrfs: [{ name: "default" }] }, path: "network.vrfs.0.name" },
  { why: "a VRF with too long a name", section: { vrfs: [{ name: "r".repeat(16) }] }, path: "network.vrfs.0.name" },
  {
    why: "IPsec without its peer",
    section: { tunnels: [{ type: "ipsec", name: "t", enabled: true, mtu: 1400 }] },
    path: "network.tunnels.0.destination",
  },
  {
    why: "a tunnel of no type",
    section: { tunnels: [{ type: "pptp", name: "t", enabled: true, mtu: 1400 }] },
    path: "network.tunnels.0.type",
  },
  { why: "darkness that is a word", section: { darkMode: "yes" }, path: "network.darkMode" },
  {
    why: "a network of containers without its length",
    section: { bridgeCIDR: "172.18.0.0" },
    path: "network.bridgeCIDR",
  },
  { why: "what a cluster alone has", section: one({ clusterIP: "192.0.2.9/24" }), path: `${AT}.clusterIP` },
];

test("refuses an invalid section with the path of every mistake, and stores nothing of it", async () => {
  const dir = tempDir();
  const controller = await startController(dir, await freePort());
  const agent = await startAgent(join(dir, "node"));
  const uid = await registerNode(controller, agent, "node");
  // It would own this machine's network.
  await agent.end("SIGKILL");
  const path = `/node/${uid}/config/network`;
  const answers = await Promise.all(
    REFUSED.map(async ({ why, section, path: at }) => {
      const { status, body } = await controller.call("PUT", path, section);
      const isNamed = Array.isArray(body) && body.some((line) => String(line).startsWith(at));
      return status === 422 && isNamed ? why : `${why}: ${status} ${JSON.stringify(body).slice(0, 300)}`;
    }),
  );
  expect(answers).toEqual(REFUSED.map(({ why }) => why));
  const { body } = await controller.call("GET", `/node/${uid}`);
  expect((body as { config: object }).config).not.toHaveProperty("network");

  const several = await controller.call("PUT", path, {
    interfaces: [nic({ mtu: 1 }), { nic: "eth1", ip: "10.0.0.1" }],
    acls: [{ protocol: "tcp" }],
  });
  expect(several.status).toBe(422);
  const paths = (several.body as string[]).map((line) => line.split(":")[0]);
  for (const at of [`${AT}.mtu`, "network.interfaces.1.ip", "network.acls.0.source"]) expect(paths).toContain(at);
});
