import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  addressLine,
  deleteAddressLine,
  deleteRouteLine,
  deleteRuleLine,
  routeLine,
  ruleLine,
  setLinkLine,
  swapAddressLines,
} from "../../../../src/host/network/ip/lines.ts";
import { networkMachineInTurn } from "../../../support/network/network-machine.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const networkMachine = networkMachineInTurn();
const PAIR = "ip link add va type veth peer name vb && ip link set va up && ip link set vb up";
const LONG = "enp65s0f1np01";
const route = { table: 254, kind: "unicast", metric: 0, scope: "global", isOnLink: false } as const;
const address = { link: "va", address: "192.0.2.1/24" };

/** A directory of links to tools of this machine, as the only search path. */
function toolDirectory(...tools: readonly string[]): string {
  const dir = join(tempDir(), "tools");
  mkdirSync(dir);
  for (const tool of tools) symlinkSync(`/usr/sbin/${tool}`, join(dir, tool));
  return dir;
}

/** Writes a tool of the test. */
function script(dir: string, name: string, text: string): void {
  writeFileSync(join(dir, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
}

describe("observing", () => {
  it.each([
    { lists: false, name: "one process", ran: ["ip"] },
    { lists: true, name: "two processes where nft has to list the firewall", ran: ["ip", "nft"] },
  ])("reads the existing state, in $name", async ({ lists, ran }) => {
    const machine = await networkMachine(tempDir(), { lists }, PAIR);
    // A namespace copies the settings of the machine.
    machine.sh(`echo 0 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/conf/va/forwarding
      ip address add 192.0.2.1/24 dev va; ip route add 10.0.0.0/8 via 192.0.2.9
      ip rule add priority 77 from 10.0.0.0/8 table 5
      ip neighbour add 192.0.2.7 dev va lladdr 02:00:00:00:00:07 nud permanent`);
    const state = await machine.observe(["net.ipv4.ip_forward", "net.ipv4.conf.va.forwarding", "net.no.such"]);
    expect(machine.ran()).toStrictEqual(ran);
    expect(state.links.map(({ name }) => name)).toStrictEqual(expect.arrayContaining(["lo", "va", "vb"]));
    const link = { kind: "veth", mtu: 1500, isUp: true, hasCarrier: true, isOurs: false };
    expect(state.links.find(({ name }) => name === "va")).toMatchObject(link);
    expect(state.addresses).toContainEqual({ ...address, isOurs: false, isDynamic: false });
    const via = { via: "192.0.2.9", link: "va", protocol: 3 };
    expect(state.routes).toContainEqual({ ...route, destination: "10.0.0.0/8", ...via });
    expect(state.rules).toContainEqual({ priority: 77, protocol: 0, from: "10.0.0.0/8", table: 5 });
    expect(state.sysctls).toStrictEqual({ "net.ipv4.ip_forward": "0", "net.ipv4.conf.va.forwarding": "0" });
    expect(state).not.toHaveProperty("firewall");
    expect(state).not.toHaveProperty("nameServers");
    expect(state.dhcp).toStrictEqual([]);
    expect(await machine.neighbours()).toStrictEqual([
      { link: "va", address: "192.0.2.7", mac: "02:00:00:00:00:07", states: ["permanent"] },
    ]);
  });

  it("finds a table of ours although the ledger is lost", async () => {
    const machine = await networkMachine(tempDir());
    machine.sh("nft add table inet holdfast");
    expect(await machine.observe()).toHaveProperty("firewall");
  });

  it("names a missing tool, and works without nft", async () => {
    const machine = await networkMachine(tempDir(), { searchPath: toolDirectory() }, PAIR);
    await expect(machine.observe()).rejects.toMatchObject({
      code: "tool-missing",
      message: expect.stringMatching(/^ip /) as string,
    });
    const line = setLinkLine({ name: "va", mtu: 1400 }) ?? "";
    await expect(machine.apply({ kind: "ip", lines: [line] })).rejects.toMatchObject({ code: "tool-missing" });
    const withIp = await machine.renew({ searchPath: toolDirectory("ip") });
    expect(await withIp.observe()).not.toHaveProperty("firewall");
    const text = "table inet holdfast {\n}\n";
    await expect(withIp.apply({ kind: "nft", text })).rejects.toMatchObject({ code: "tool-missing" });
    await expect(withIp.apply({ kind: "ethtool", link: "va" })).rejects.toMatchObject({ code: "unsupported" });
  });

  it("gives up on endless output of a tool", async () => {
    const machine = await networkMachine(tempDir(), { maxOutputBytes: 200 }, PAIR);
    await expect(machine.observe()).rejects.toMatchObject({ code: "too-much-output" });
  });
});

describe("lines for ip", () => {
  it("mark what they add, and remove nothing else", async () => {
    const machine = await networkMachine(tempDir(), {}, PAIR);
    machine.sh(`ip address add 198.51.100.1/24 dev va; ip route add 10.0.0.0/8 via 198.51.100.9
      ip rule add priority 5180 from 10.0.0.0/8 table 5`);
    const before = await machine.observe();
    const ours = { ...route, destination: "10.0.0.0/8", via: "192.0.2.9", link: "va", source: "192.0.2.1" };
    const rule = { priority: 5180, from: "10.0.0.0/8", inLink: "vb", outLink: "va", mark: 16, mask: 255, table: 5 };
    await machine.apply({ kind: "ip", lines: [addressLine(address), routeLine(ours), ruleLine(rule)] });
    const after = await machine.observe();
    expect(after.addresses).toContainEqual({ ...address, isOurs: true, isDynamic: false });
    expect(after.routes).toContainEqual({ ...ours, protocol: 218 });
    expect(after.rules).toContainEqual({ ...rule, protocol: 218 });
    // Our route is used, and the foreign one stays.
    expect(machine.sh("ip route get 10.1.1.1")).toContain("via 192.0.2.9");
    for (const key of ["addresses", "routes", "rules"] as const)
      expect(after[key]).toStrictEqual(expect.arrayContaining([...before[key]]));
    await machine.apply({
      kind: "ip",
      lines: [deleteRuleLine(rule), deleteRouteLine(ours), deleteAddressLine(address)],
    });
    const again = await machine.observe();
    for (const key of ["addresses", "routes", "rules"] as const) expect(again[key]).toStrictEqual(before[key]);
  });

  it("record an address without room for a mark", async () => {
    const dir = tempDir();
    const machine = await networkMachine(dir, {}, `ip link add ${LONG} type veth peer name vb`);
    const [mine, his] = ["192.0.2.1/24", "192.0.2.2/24"].map((address) => ({ link: LONG, address }));
    machine.sh(`ip address add 192.0.2.2/24 dev ${LONG}`);
    await machine.apply({ kind: "ip", lines: [addressLine(mine ?? address)] });
    const seen = { isDynamic: false };
    const restarted = await machine.renew();
    const { addresses } = await restarted.observe();
    expect(addresses).toContainEqual({ ...mine, ...seen, isOurs: true });
    expect(addresses).toContainEqual({ ...his, ...seen, isOurs: false });
    await restarted.apply({ kind: "ip", lines: [deleteAddressLine(mine ?? address)] });
    // Foreign from now on.
    restarted.sh(`ip address add 192.0.2.1/24 dev ${LONG}`);
    expect((await restarted.observe()).addresses).toContainEqual({ ...mine, ...seen, isOurs: false });
  });

  it.each([
    ["with room for a mark", "va"],
    ["without", LONG],
  ])("record an address that was leased until now, and thus has no mark, on a link %s", async (_what, link) => {
    const pair = `ip link add ${link} type veth peer name vb && ip link set ${link} up && ip link set vb up`;
    const machine = await networkMachine(tempDir(), {}, pair);
    machine.sh(`ip address add 192.0.2.1/24 dev ${link} valid_lft 900 preferred_lft 900 noprefixroute`);
    const own = { link, address: "192.0.2.1/24" };
    expect((await machine.observe()).addresses).toContainEqual({
      ...own,
      isOurs: false,
      isDynamic: true,
      hasNoRoute: true,
    });
    await machine.apply({ kind: "ip", lines: [addressLine(own)] });
    const ours = { ...own, isOurs: true, isDynamic: false };
    const restarted = await machine.renew();
    expect((await restarted.observe()).addresses).toContainEqual({ ...ours, hasNoRoute: true });

    restarted.sh(
      `ip route add 10.0.0.0/8 via 192.0.2.9 dev ${link} onlink; ip route add 10.1.0.0/16 dev ${link} src 192.0.2.1`,
    );
    await restarted.apply({ kind: "ip", lines: swapAddressLines(own, () => true) });
    const again = await restarted.renew();
    const { addresses, routes } = await again.observe();
    expect(addresses.filter((one) => one.link === link)).toEqual([ours]);
    for (const destination of ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24"])
      expect(routes).toContainEqual(expect.objectContaining({ destination, link }));

    await again.apply({ kind: "ip", lines: [deleteAddressLine(own)] });
    again.sh(`ip address add 192.0.2.1/24 dev ${link}`);
    expect((await again.observe()).addresses).toContainEqual({ ...ours, isOurs: false });
  });

  it("record such an address before ip is called", async () => {
    const tools = toolDirectory("nft");
    script(tools, "ip", `/usr/sbin/ip "$@"; [ "$1" != -batch ]`);
    const searchPath = `${tools}:/usr/bin:/bin`;
    const machine = await networkMachine(tempDir(), { searchPath }, `ip link add ${LONG} type veth peer name vb`);
    const mine = { link: LONG, address: "192.0.2.1/24" };
    const lines = [addressLine(mine)];
    await expect(machine.apply({ kind: "ip", lines })).rejects.toMatchObject({ code: "ip-failed" });
    const { addresses } = await (await machine.renew()).observe();
    expect(addresses).toContainEqual({ ...mine, isDynamic: false, isOurs: true });
  });

  it("mark addresses by their protocol if ip supports it", async () => {
    const dir = tempDir();
    const tools = toolDirectory("nft");
    script(
      tools,
      "ip",
      `case "$*" in
      "-force -batch -") cat >/dev/null; echo "Usage: ip address [ proto PROTOCOL ]" >&2; exit 255 ;;
      "-batch -") cat >${dir}/batch ;;
      *) exec /usr/sbin/ip "$@" ;; esac`,
    );
    const machine = await networkMachine(dir, { searchPath: `${tools}:/usr/bin:/bin` }, PAIR);
    await machine.apply({ kind: "ip", lines: [addressLine(address), deleteAddressLine(address)] });
    expect(readFileSync(`${dir}/batch`, "utf8")).toBe(
      "address replace 192.0.2.1/24 brd + dev va label va:hf proto 218\naddress delete 192.0.2.1/24 dev va\n",
    );
  });

  it("are ours under any new name of their link", async () => {
    const machine = await networkMachine(tempDir(), {}, PAIR);
    const rename = (from: string, to: string): string =>
      machine.sh(`ip link set ${from} down; ip link set ${from} name ${to}; ip link set ${to} up`);
    const second = { link: "va", address: "192.0.2.2/24" };
    machine.sh("ip address add 198.51.100.1/24 dev va");
    await machine.apply({ kind: "ip", lines: [address, second].map(addressLine) });
    const owned = async (): Promise<readonly string[]> =>
      (await machine.observe()).addresses.flatMap(({ isOurs, link, address: one }) =>
        isOurs ? [`${link} ${one}`] : [],
      );
    expect(await owned()).toEqual(["va 192.0.2.1/24", "va 192.0.2.2/24"]);
    rename("va", "lan9");
    expect(await owned()).toEqual(["lan9 192.0.2.1/24", "lan9 192.0.2.2/24"]);
    machine.sh("ip address delete 198.51.100.1/24 dev lan9");
    rename("lan9", "va");
    expect(await owned()).toEqual(["va 192.0.2.1/24", "va 192.0.2.2/24"]);
    // A foreign address in its place is not ours.
    machine.sh("ip address delete 192.0.2.2/24 dev va; ip address add 192.0.2.2/24 dev va");
    expect(await owned()).toEqual(["va 192.0.2.1/24"]);
  });

  it("name the failing line, in ip's own words, and stop there", async () => {
    const machine = await networkMachine(tempDir(), {}, PAIR);
    const unreachable = routeLine({ ...route, destination: "10.0.0.0/8", via: "203.0.113.1", link: "va" });
    const lines = [addressLine(address), unreachable, setLinkLine({ name: "va", mtu: 1300 }) ?? ""];
    await expect(machine.apply({ kind: "ip", lines })).rejects.toMatchObject({
      code: "ip-failed",
      message: `ip: line 2, ${unreachable}: Nexthop has invalid gateway.`,
      details: { line: 2, text: unreachable, said: "Nexthop has invalid gateway." },
    });
    const { addresses, links } = await machine.observe();
    expect(addresses).toContainEqual({ ...address, isOurs: true, isDynamic: false });
    expect(links.find(({ name }) => name === "va")?.mtu).toBe(1500);
  });

  it("are passed to ip only once their owner is recorded, and not after a failure of that", async () => {
    const dir = tempDir();
    const machine = await networkMachine(dir, {}, PAIR);
    await machine.observe();
    mkdirSync(join(dir, "state", "network.json", "in-the-way"), { recursive: true });
    const lines = [setLinkLine({ name: "va", mtu: 1300 }) ?? ""];
    await expect(machine.apply({ kind: "ip", lines })).rejects.toMatchObject({ code: "file-failed" });
    expect(machine.ran()).toStrictEqual([]);
    expect((await machine.observe()).links.find(({ name }) => name === "va")?.mtu).toBe(1500);
  });

  it("survive a link that disappears during the call", async () => {
    const machine = await networkMachine(tempDir(), {}, PAIR);
    machine.sh("ip address add 192.0.2.1/24 dev va");
    await machine.observe();
    machine.sh("ip link delete va");
    const lines = [setLinkLine({ name: "lo", isUp: true }) ?? "", addressLine({ link: "va", address: "192.0.2.5/24" })];
    await expect(machine.apply({ kind: "ip", lines })).rejects.toMatchObject({
      code: "ip-failed",
      details: { line: 2, said: expect.stringContaining("va") as string },
    });
    expect((await machine.observe()).links.map(({ name }) => name)).not.toContain("va");
  });

  it("add 1,000 routes and 1,000 rules in one process", async () => {
    const machine = await networkMachine(tempDir(), {}, `${PAIR} && ip address add 192.0.2.1/24 dev va`);
    const many = Array.from({ length: 1000 }, (_, at) => `10.${at >> 8}.${at & 255}.0/24`);
    const lines = many.flatMap((destination, at) => [
      routeLine({ ...route, destination, via: "192.0.2.9", link: "va" }),
      ruleLine({ priority: 5180 + (at % 800), from: destination, table: 5 }),
    ]);
    await machine.features();
    await machine.apply({ kind: "ip", lines });
    expect(machine.ran()).toStrictEqual(["ip"]);
    const { routes, rules } = await machine.observe();
    expect(routes.filter(({ protocol }) => protocol === 218)).toHaveLength(1000);
    expect(rules.filter(({ protocol }) => protocol === 218)).toHaveLength(1000);
  });
});

describe("other changes", () => {
  it("set sysctls and name those that fail", async () => {
    const machine = await networkMachine(tempDir(), {}, PAIR);
    const name = "net.ipv4.conf.va.forwarding";
    await machine.apply({ kind: "sysctl", values: [[name, "1"]] });
    expect((await machine.observe([name])).sysctls).toStrictEqual({ [name]: "1" });
    const set = (name: string, value: string) => machine.apply({ kind: "sysctl", values: [[name, value]] });
    await expect(set("net.ipv4.no_such", "1")).rejects.toMatchObject({
      code: "unsupported",
      message: "this kernel has no net.ipv4.no_such",
    });
    await expect(set(name, "much")).rejects.toMatchObject({ code: "sysctl-failed", details: { sysctl: name } });
    for (const bad of ["kernel.hostname", "net", "net.ipv4.//.x", "net.a b", "net..x"])
      await expect(set(bad, "1")).rejects.toMatchObject({ code: "bad-name" });
  });

  it("report that a driver cannot set speed and duplex", async () => {
    const machine = await networkMachine(tempDir(), {}, PAIR);
    const fixed = { speedMbps: 100, duplex: "full" } as const;
    const set = machine.apply({ kind: "ethtool", link: "va", fixed });
    await expect(set).rejects.toMatchObject({ code: "unsupported" });
    expect((await machine.observe()).links.find(({ name }) => name === "va")).not.toHaveProperty("fixed");
    await expect(machine.apply({ kind: "ethtool", link: "gone" })).rejects.toMatchObject({ code: "ethtool-failed" });
  });

  it("record the speed that was set", async () => {
    const dir = tempDir();
    const tools = toolDirectory("ip", "nft");
    script(tools, "ethtool", `echo "$*" >>${dir}/told`);
    const searchPath = `${tools}:/usr/bin:/bin`;
    const machine = await networkMachine(dir, { searchPath }, "ip link add va type bridge");
    const fixed = { speedMbps: 100, duplex: "half" } as const;
    await machine.apply({ kind: "ethtool", link: "va", fixed });
    const va = async () => (await machine.observe()).links.find(({ name }) => name === "va");
    expect(await va()).toMatchObject({ fixed });
    await machine.apply({ kind: "ethtool", link: "va" });
    expect(await va()).not.toHaveProperty("fixed");
    expect(machine.sh(`cat ${dir}/told`)).toBe("-s va autoneg off speed 100 duplex half\n-s va autoneg on\n");
  });

  it("decide without a process whether anything may be ours", async () => {
    const machine = await networkMachine(tempDir(), {}, PAIR);
    expect(await machine.mayOwn()).toBe(false);
    expect(machine.ran()).toStrictEqual([]);
    await machine.apply({ kind: "ip", lines: [addressLine(address)] });
    const restarted = await machine.renew();
    expect(await restarted.mayOwn()).toBe(true);
    await restarted.disown();
    expect(await (await restarted.renew()).mayOwn()).toBe(false);
  });
});

describe("features", () => {
  it("are tested once, with the reason of a failure", async () => {
    const machine = await networkMachine(tempDir());
    const features = await machine.features();
    expect(features).toMatchObject({ nft: true, bridge: true });
    for (const [name, reason] of Object.entries(features.reasons)) {
      expect(features[name]).toBe(false);
      expect(reason).toMatch(/\w/);
    }
    // Nothing of it remains.
    expect((await machine.observe()).links.map(({ name }) => name)).toStrictEqual(["lo"]);
    await machine.features();
    expect(machine.ran()).toStrictEqual([]);
  });

  it("are reported as unknown when nothing can be tested", async () => {
    const machine = await networkMachine(tempDir(), { searchPath: toolDirectory("ip"), dhcpClients: [] });
    const features = await machine.features();
    expect(features).toMatchObject({ vlan: false, nft: false, dhcp: false });
    const reason = "cannot try it in a network namespace: unshare is not installed";
    expect(features.reasons).toMatchObject({ vlan: reason, nft: reason, dhcp: "no DHCP client is installed" });
  });

  it("are tested in a user namespace if no other is allowed", async () => {
    const tools = toolDirectory("ip", "nft");
    script(
      tools,
      "unshare",
      `[ "$1" != -n ] || { echo "unshare: unshare failed: Operation not permitted" >&2; exit 1; }
      shift; exec /usr/bin/unshare -n "$@"`,
    );
    const machine = await networkMachine(tempDir(), { searchPath: `${tools}:/usr/bin:/bin` });
    expect(await machine.features()).toMatchObject({ nft: true, bridge: true });
    expect(machine.ran()).toStrictEqual(["unshare", "unshare", "unshare", "unshare"]);
  });

  it("distinguish a missing nft from one that refuses", async () => {
    const tools = toolDirectory("ip");
    symlinkSync("/usr/bin/unshare", join(tools, "unshare"));
    const machine = await networkMachine(tempDir(), { searchPath: tools });
    expect((await machine.features()).reasons).toMatchObject({ nft: "nft is not installed" });
  });
});
