import { existsSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { DHCP_CLIENTS, type DhcpClient } from "../../../../../src/host/network/dhcp/dhcp-client.ts";
import { atOnce } from "../../../../support/at-once.ts";
import { networkMachine, type NetworkMachine } from "../../../../support/network/network-machine.ts";
import { sampleOf } from "../../../../support/sample.ts";
import { tempDir } from "../../../../support/temp-dir.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const isInstalled = (tool: string): boolean => existsSync(`/usr/sbin/${tool}`) || existsSync(`/sbin/${tool}`);
const CLIENTS = DHCP_CLIENTS.filter(isInstalled);
const LAN = "ip link add cl type veth peer name sv && ip link set sv up";
const run = (start: boolean) => ({ kind: "dhcp", link: "cl", run: start }) as const;

/** A server in a namespace of its own at the other end of `cl`, whose leases last two minutes. */
function serve(machine: NetworkMachine, dir: string): void {
  machine.sh(`unshare -n sleep 300 >/dev/null 2>&1 & echo $! >/run/server; sleep 0.2
    at="nsenter -t $(cat /run/server) -n"
    ip link set sv netns $(cat /run/server)
    $at ip address add 192.0.2.1/24 dev sv; $at ip link set sv up
    routes=10.99.0.0/16,192.0.2.9,198.51.100.7/32,192.0.2.9,0.0.0.0/0,192.0.2.9
    forced="--dhcp-option-force=121,$routes --dhcp-option-force=249,$routes --dhcp-option-force=33,203.0.113.9,192.0.2.9"
    $at dnsmasq -u root -p 0 -i sv -F 192.0.2.100,192.0.2.120,255.255.255.0,2m $forced \\
      --dhcp-option=6,192.0.2.53 --dhcp-leasefile=${dir}/served --log-facility=${dir}/server.log --log-dhcp -C /dev/null -x /run/dnsmasq.pid`);
}

/** Waits until the monitor has reported a marker address, added and removed for that. */
async function untilReported(machine: NetworkMachine, mark: string): Promise<void> {
  await waitFor("the monitor listens", () => {
    machine.sh(`ip address add ${mark}/32 dev lo; ip address delete ${mark}/32 dev lo`);
    return machine.sh("cat /run/said").includes(mark);
  });
}

/** A client, and the address, derived from its lease, that is static before it ends. */
type Static = [client: DhcpClient, what: string, of: (leased: string) => string];

describe.skipIf(!isInstalled("dnsmasq"))("with a server", () => {
  it("has each client lease an address, survives us, and ends", async () => {
    await atOnce(CLIENTS, String, async (client) => {
      const dir = tempDir();
      const machine = await networkMachine(dir, { dhcpClients: [client] }, LAN);
      serve(machine, dir);
      const resolver = readFileSync("/etc/resolv.conf", "utf8");
      // An address leased by another client stays all the time.
      machine.sh("ip address add 203.0.113.5/24 dev cl valid_lft 900 preferred_lft 900");
      await machine.apply(run(true));
      const leased = await waitFor("a leased address", async () => {
        const { addresses, routes } = await machine.observe();
        const found = addresses.find(({ address }) => address.startsWith("192.0.2.1"));
        return routes.some(({ destination }) => destination === "0.0.0.0/0") && found;
      });
      expect(leased).toMatchObject({ link: "cl", isDynamic: true, isOurs: false });
      expect(leased.address).toMatch(/\/24$/);
      const restarted = await machine.restart();
      const { routes, dhcp } = await restarted.observe();
      expect(dhcp).toStrictEqual(["cl"]);
      const way = { table: 254, kind: "unicast", link: "cl", protocol: 16 };
      const metric = 300 + Number.parseInt(machine.sh("ip -o link show cl"), 10);
      // The server sends static routes without a request, too.
      expect(routes.filter(({ protocol }) => protocol === 16)).toStrictEqual([
        expect.objectContaining({ ...way, destination: "0.0.0.0/0", via: "192.0.2.1", metric }),
        expect.objectContaining({ ...way, destination: "192.0.2.0/24", metric }),
      ]);
      expect(readFileSync("/etc/resolv.conf", "utf8")).toBe(resolver);
      await expect
        .poll(async () => (await restarted.observe()).leases)
        .toStrictEqual({
          cl: { router: "192.0.2.1", nameServers: ["192.0.2.53"] },
        });
      // Once is enough.
      await restarted.apply(run(true));
      await restarted.apply(run(false));
      const after = await restarted.observe();
      expect(after.dhcp).toStrictEqual([]);
      expect(after.addresses.map(({ address }) => address)).toStrictEqual(["127.0.0.1/8", "203.0.113.5/24"]);
      expect(after.routes.filter(({ protocol }) => protocol === 16)).toStrictEqual([]);
      await waitFor("the lease given back", () => readFileSync(`${dir}/server.log`, "utf8").includes("DHCPRELEASE"));
      await restarted.apply(run(false));
    });
  });

  it("has a client skip the default route, and reports it", async () => {
    await atOnce(sampleOf(CLIENTS, 1, "clients without a gateway"), String, async (client) => {
      const dir = tempDir();
      const machine = await networkMachine(dir, { dhcpClients: [client] }, LAN);
      serve(machine, dir);
      await machine.apply({ ...run(true), withoutGateway: true });
      const { routes, dhcpWithoutGateway } = await waitFor("a lease", async () => {
        const state = await machine.observe();
        return (
          state.leases?.["cl"] !== undefined &&
          state.routes.some(({ destination }) => destination === "192.0.2.0/24") &&
          state
        );
      });
      expect(routes.filter(({ protocol }) => protocol === 16).map(({ destination }) => destination)).toStrictEqual([
        "192.0.2.0/24",
      ]);
      expect(dhcpWithoutGateway).toStrictEqual(["cl"]);
      await expect
        .poll(async () => (await machine.observe()).leases)
        .toStrictEqual({
          cl: { router: "192.0.2.1", nameServers: ["192.0.2.53"] },
        });
      await machine.apply(run(false));
      await machine.apply(run(true));
      await waitFor("a default route", async () =>
        (await machine.observe()).routes.some(({ destination }) => destination === "0.0.0.0/0"),
      );
      const after = await machine.observe();
      expect(after.dhcpWithoutGateway).toBeUndefined();
      await machine.apply(run(false));
      expect((await machine.observe()).leases).toBeUndefined();
    });
  });

  it("has a client end and an address stay that is static by then, the leased one or another of its subnet", async () => {
    const cases = [
      ...DHCP_CLIENTS.map((client): Static => [client, "the leased address", (leased) => leased]),
      ["udhcpc", "another of the same subnet", () => "192.0.2.50/24"],
    ] satisfies Static[];
    const installed = cases.filter(([client]) => isInstalled(client));
    const name = ([client, what]: Static): string => `${client}, ${what}`;
    await atOnce(sampleOf(installed, 2, "clients of a static address"), name, async ([client, what, staticOf]) => {
      const dir = tempDir();
      const machine = await networkMachine(dir, { dhcpClients: [client] }, LAN);
      serve(machine, dir);
      await machine.apply(run(true));
      const ofSubnet = async () =>
        (await machine.observe()).addresses.filter((one) => one.address.startsWith("192.0.2."));
      const [leased] = await waitFor("a leased address", async () => {
        const found = await ofSubnet();
        return found.length > 0 && found;
      });
      const address = staticOf(leased?.address ?? "");
      await machine.apply({ kind: "ip", lines: [`address replace ${address} dev cl label cl:hf`] });
      machine.sh("ip -4 -o monitor address >/run/said 2>&1 & echo $! >/run/monitor");
      await untilReported(machine, "192.0.2.254");
      await machine.apply(run(false));
      await untilReported(machine, "192.0.2.253");
      expect(await ofSubnet()).toMatchObject([{ address, isDynamic: false }]);
      const { dhcp, routes } = await machine.observe();
      expect(dhcp).toStrictEqual([]);
      expect(routes.filter(({ protocol }) => protocol === 16)).toStrictEqual([]);
      // An address that stays on the link is not released either.
      const isGone = new RegExp(`Deleted \\d+: cl +inet ${leased?.address} `).test(machine.sh("cat /run/said"));
      const isReleased = readFileSync(`${dir}/server.log`, "utf8").includes("DHCPRELEASE");
      const isAnother = what.startsWith("another");
      expect([isGone, isReleased]).toStrictEqual([isAnother, isAnother]);
      await machine.apply(run(true));
      await waitFor("a lease again", async () => (await ofSubnet()).some(({ isDynamic }) => isDynamic));
    });
  });

  it.skipIf(!isInstalled("udhcpc"))("detects that a client was killed, and cleans up after it", async () => {
    const dir = tempDir();
    const machine = await networkMachine(dir, { dhcpClients: ["udhcpc"] }, LAN);
    serve(machine, dir);
    await machine.apply(run(true));
    const has = async () => (await machine.observe()).addresses.some(({ address }) => address.startsWith("192.0.2."));
    await waitFor("a leased address", has);
    machine.sh(`kill -KILL $(cut -d' ' -f1 ${dir}/run/dhcp-cl.pid)`);
    await waitFor("no client", async () => (await machine.observe()).dhcp.length === 0);
    expect(await has()).toBe(true);
    await machine.apply(run(false));
    expect(await has()).toBe(false);
  });
});

describe("without a server", () => {
  it("reports that no client is installed", async () => {
    const machine = await networkMachine(tempDir(), { dhcpClients: [] }, LAN);
    await expect(machine.apply(run(true))).rejects.toMatchObject({ code: "unsupported" });
  });

  it.skipIf(!isInstalled("udhcpc"))("reports that the link does not exist", async () => {
    const machine = await networkMachine(tempDir(), { dhcpClients: ["udhcpc"] });
    await expect(machine.apply(run(true))).rejects.toMatchObject({ code: "dhcp-failed" });
    await machine.apply(run(false));
    expect((await machine.observe()).dhcp).toStrictEqual([]);
  });

  it.skipIf(!isInstalled("udhcpc"))("does not mistake another process for the client", async () => {
    const dir = tempDir();
    const machine = await networkMachine(dir, { dhcpClients: ["udhcpc"] }, LAN);
    machine.sh(`cat /proc/self/stat >${dir}/run/dhcp-cl.pid; cat /proc/1/stat >${dir}/run/dhcp-sv.pid`);
    machine.sh(`echo nonsense >${dir}/run/dhcp-lo.pid`);
    expect((await machine.observe()).dhcp).toStrictEqual([]);
  });
});
