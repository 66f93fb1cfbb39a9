import { execFileSync, spawn, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { placesOf } from "../../../scripts/labs/programs.ts";
import { dhcpUnit } from "../../../src/host/network/dhcp/dhcp-client.ts";
import { WINDOW_SECONDS, type EdgeMachine } from "../../support/network/edge-machine.ts";
import { serveLeases } from "../../support/network/lease-server.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { UNDER_UNITS } from "../../support/machine/real-units.ts";
import { sampleOf } from "../../support/sample.ts";
import { waitFor } from "../../support/wait-for.ts";

const GATEWAY = "192.168.1.1";
const STATIC = lanSection({ nic: "eth0", ip: "192.168.1.2/24", gateway: GATEWAY });
const LEASED = lanSection({ nic: "eth0", dhcp: true });
/** A link that dhcpcd has worked on: it sets this by itself. */
const isAside = (line: string): boolean => line.includes("/conf/eth0/promote_secondaries:");

/** The tested scenarios, each by the name of its machine. */
const NAMES = [
  "moves",
  ...sampleOf(["same", "kept", "silent", "astray", "renewed", "lost"] as const, 1, "leases of a WAN"),
] as const;
const stage = networkStage(Object.fromEntries(NAMES.map((name) => [name, []])));

/** Tests a scenario on its machine, beside the others. */
function scenario(name: (typeof NAMES)[number], title: string, run: (machine: EdgeMachine) => Promise<void>): void {
  const add = UNDER_UNITS ? test : test.concurrent;
  if (NAMES.includes(name)) add(title, async () => run(await machineOf(name)), 420_000);
}

/** The machine of a test. Where systemd runs the clients there is one for all machines, which have its unit for `eth0` in turn. */
async function machineOf(name: (typeof NAMES)[number]): Promise<EdgeMachine> {
  const machine = stage.machine(name);
  if (!UNDER_UNITS) return machine;
  for (const other of NAMES) await stage.lab.endAgent(other);
  endClient();
  await machine.start();
  return machine;
}

function endClient(): void {
  // There need not be one.
  if (UNDER_UNITS) spawnSync("systemctl", ["stop", "--", dhcpUnit("eth0")], { stdio: "ignore" });
}
afterAll(endClient);

scenario(
  "moves",
  "the WAN goes from its address to that of a lease, over which it proves itself, and back",
  async (machine) => {
    await machine.own(STATIC);
    const before = machine.state();
    const resolver = (): string =>
      readFileSync(join(placesOf(machine.lab.dir, "moves").own, "etc/resolv.conf"), "utf8");
    const [former, server] = [resolver(), "192.168.1.53"];
    const stop = await serveLeases(machine, "192.168.1.100", { of: "wan", dns: server });
    await machine.apply(LEASED);
    await waitFor("the lease is all there is", () => addresses(machine).join(" ") === "192.168.1.100");
    expect(gateways(machine)).toEqual([GATEWAY]);
    await waitFor("its name server is asked", () => resolver().includes(`nameserver ${server}\n`));
    await machine.untilOnline();
    const client = clientOf(machine);

    await machine.apply(STATIC);
    await machine.untilAs(before, 30_000, isAside);
    await waitFor("the client has ended", () => !machine.lab.network.pids("moves").includes(client));
    expect(resolver()).toBe(former);
    stop();
    await machine.untilOnline();
  },
);

scenario(
  "same",
  "a lease of the very address that the WAN had takes its place without a gap, and gives it back",
  async (machine) => {
    await machine.own(STATIC);
    const before = machine.state();
    const stop = await serveLeases(machine, "192.168.1.2", { of: "wan" });
    const heard = await listen(machine);
    await machine.apply(LEASED);
    await waitFor("it has a lease", () => /ifname=eth0.*local=192\.168\.1\.2 /.test(lifetimes(machine)));
    await machine.untilSettled();
    expect(addresses(machine)).toEqual(["192.168.1.2"]);
    expect(gateways(machine)).toEqual([GATEWAY]);
    await machine.untilOnline();
    const said = await heard();
    expect(said.filter((line) => /^Deleted \d+: eth0 /.test(line))).toEqual([]);
    const [leased, ownWent] = [/^default .*proto dhcp/, /^Deleted default /].map((line) =>
      said.findIndex((one) => line.test(one)),
    );
    expect(leased).toBeGreaterThanOrEqual(0);
    expect(ownWent).toBeGreaterThan(leased ?? 0);

    const gaps = await watchGaps(machine, "192.168.1.2", GATEWAY);
    await machine.apply(STATIC);
    await machine.untilAs(before, 30_000, isAside);
    expect(await gaps()).toEqual([]);
    stop();
    await machine.untilOnline();
  },
);

scenario(
  "kept",
  "a WAN keeps the address that it was leased as its own without a gap, and gives it up again",
  async (machine) => {
    await machine.own(STATIC);
    const stop = await serveLeases(machine, "192.168.1.100", { of: "wan" });
    await machine.apply(LEASED);
    await waitFor("the lease is all there is", () => addresses(machine).join(" ") === "192.168.1.100");
    await machine.untilSettled();
    const client = clientOf(machine);
    const gaps = await watchGaps(machine, "192.168.1.100", GATEWAY);
    await machine.apply(lanSection({ nic: "eth0", ip: "192.168.1.100/24", gateway: GATEWAY }));
    await waitFor("the client has ended", () => !machine.lab.network.pids("kept").includes(client));
    await machine.untilSettled();
    expect(await gaps()).toEqual([]);
    expect(machine.sh("ip -4 -o address show dev eth0")).toMatch(
      /inet 192\.168\.1\.100\/24 .* eth0:hf\\ +valid_lft forever/,
    );
    expect(machine.sh("ip -4 route show proto dhcp")).toBe("");
    expect(machine.sh("ip -4 route show 192.168.1.0/24")).toMatch(
      /^\S+ dev eth0 proto kernel scope link src 192.168.1.100 ?\n$/,
    );
    await machine.untilOnline();

    await machine.apply(STATIC);
    await waitFor("it is given up", () => addresses(machine).join(" ") === "192.168.1.2");
    stop();
    await machine.untilOnline();
  },
);

scenario(
  "silent",
  "a WAN without a DHCP answer has its address back in time, and the control plane gets the reason",
  async (machine) => {
    await machine.own(STATIC);
    const before = machine.state();
    const { documents } = await machine.status();
    const begun = performance.now();
    await machine.put(LEASED);
    await waitFor("the client runs", () => clientOf(machine) > 0);
    expect(addresses(machine)).toEqual(["192.168.1.2"]);
    await waitFor("it is refused", async () => (await machine.status()).documents.node?.refused !== undefined);
    expect(performance.now() - begun).toBeLessThan((WINDOW_SECONDS + 15) * 1000);
    await machine.untilAs(before, 10_000, isAside);
    expect((await machine.status()).documents.node?.refused).toBe((documents.node?.version ?? 0) + 1);
    await waitFor("the control plane knows", async () =>
      /no DHCP server has answered on eth0/.test(JSON.stringify(await machine.events())),
    );
    await machine.untilOnline();
  },
);

scenario(
  "astray",
  "a lease that leads nowhere is verified within the window, and the former address is applied again",
  async (machine) => {
    await machine.own(STATIC);
    const before = machine.state();
    const stop = await serveLeases(machine, "192.168.1.100", { of: "wan", gateway: "192.168.1.99" });
    await machine.put(LEASED);
    await waitFor("only the lease leads anywhere", () => gateways(machine).join(" ") === "192.168.1.99");
    await machine.untilAs(before, (WINDOW_SECONDS + 20) * 1000, isAside);
    await waitFor(
      "the control plane knows",
      async () => /reverted[^"]*control plane/i.test(JSON.stringify(await machine.events())),
      60_000,
    );
    stop();
    await waitFor("it is refused", async () => (await machine.status()).documents.node?.refused !== undefined);
  },
);

scenario(
  "renewed",
  "a lease that names another gateway while a change is pending is the one that counts afterwards",
  async (machine) => {
    await machine.own(STATIC);
    const stop = await serveLeases(machine, "192.168.1.100", { of: "wan" });
    await machine.apply(LEASED);
    const before = machine.state();
    const isOfLease = (line: string): boolean => line.includes("eth0");
    machine.sh("ip address add 192.168.1.254/24 dev lan", machine.router);

    const wall = { protocol: "any", source: "203.0.113.10/32", dest: "0.0.0.0/0", action: "drop" };
    await machine.put({ ...LEASED, rules: [wall] });
    await waitFor("the change is made", () => machine.state().nftables.length !== before.nftables.length);
    stop();
    const stopOther = await serveLeases(machine, "192.168.1.100", { of: "wan", gateway: "192.168.1.254" });
    machine.sh("ip link set renewed down && sleep 2 && ip link set renewed up", machine.router);
    await waitFor("it has another gateway", () => gateways(machine).join(" ") === "192.168.1.254");
    await machine.untilAs(before, (WINDOW_SECONDS + 30) * 1000, isOfLease);
    expect(gateways(machine)).toEqual(["192.168.1.254"]);
    expect(addresses(machine)).toEqual(["192.168.1.100"]);
    await machine.untilOnline();
    await machine.untilSettled();
    stopOther();
  },
);

scenario("lost", "a WAN that loses its lease reports it, and recovers with the next one", async (machine) => {
  await machine.own(STATIC);
  const stop = await serveLeases(machine, "192.168.1.100", { of: "wan", gateway: GATEWAY, seconds: 20 });
  await machine.apply(LEASED);
  expect(addresses(machine)).toEqual(["192.168.1.100"]);
  const client = clientOf(machine);
  stop();
  await waitFor("the lease is over", () => addresses(machine).length === 0, 180_000);
  expect(gateways(machine)).toEqual([]);
  const why = await waitFor("it reports it", async () => {
    const { stdout } = await machine.verb("why");
    return stdout.includes("no-lease") ? stdout : undefined;
  });
  expect(why).toContain("no DHCP server has answered on eth0");

  await serveLeases(machine, "192.168.1.120", { of: "wan" });
  await waitFor("there is another lease", () => addresses(machine).join(" ") === "192.168.1.120");
  expect(clientOf(machine)).toBe(client);
  await machine.untilOnline();
  await machine.untilSettled();
  expect((await machine.status()).documents.node?.refused).toBeUndefined();
});

function addresses(machine: EdgeMachine): readonly string[] {
  return machine
    .paths()
    .addresses.flatMap((line) => (line.includes("ifname=eth0 ") ? (/ local=(\S+)/.exec(line)?.[1] ?? []) : []));
}

function gateways(machine: EdgeMachine): readonly string[] {
  return machine.sh("ip -4 route show default").match(/(?<=via )\S+/g) ?? [];
}

/**
 * Listens from here on; what comes back gives what the kernel has told with which the machine was without that address, of whatever prefix
 * length, or without any way over that gateway.
 */
async function watchGaps(
  machine: EdgeMachine,
  address: string,
  gateway: string,
): Promise<() => Promise<readonly string[]>> {
  const fact = (line: string): { readonly kind: string; readonly key: string } | undefined => {
    const length = new RegExp(`inet ${address.replaceAll(".", String.raw`\.`)}/(\\d+)`).exec(line)?.[1];
    if (length !== undefined) return { kind: "address", key: length };
    return line.startsWith(`default via ${gateway} `) ? { kind: "route", key: line.trim() } : undefined;
  };
  const heard = await listen(machine);
  const shown = machine.sh("ip -4 -o address show dev eth0; ip -4 route show default").split("\n");
  const held = { address: new Set<string>(), route: new Set<string>() };
  const take = (line: string): boolean => {
    const isGone = line.startsWith("Deleted ");
    const found = fact(isGone ? line.slice("Deleted ".length) : line);
    if (found === undefined) return false;
    const { kind, key } = found;
    const keys = kind === "address" ? held.address : held.route;
    if (isGone) keys.delete(key);
    else keys.add(key);
    return keys.size === 0;
  };
  shown.forEach(take);
  expect([held.address.size, held.route.size]).toEqual([1, 1]);
  return async () => (await heard()).filter(take);
}

/** Listens from here on; what comes back gives what the kernel has told of addresses and routes meanwhile, line by line. */
async function listen(machine: EdgeMachine): Promise<() => Promise<readonly string[]>> {
  const [file, ...args] = [...machine.within, "ip", "-4", "-o", "monitor", "address", "route"];
  const monitor = spawn(file, args, { stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  monitor.stdout.setEncoding("utf8").on("data", (text: string) => (said += text));
  let marks = 0;
  /** Waits until it has told of an address that comes and goes only for that. */
  const untilReported = async (): Promise<void> => {
    marks += 1;
    const mark = `192.0.2.${marks}/32`;
    await waitFor("it listens", () => {
      machine.sh(`ip address add ${mark} dev lo; ip address delete ${mark} dev lo`);
      return said.includes(mark);
    });
  };
  await untilReported();
  said = "";
  // It ends with the lab, at the latest.
  return async () => {
    await untilReported();
    monitor.kill("SIGKILL");
    return said.split("\n");
  };
}

/** Returns the addresses with a lifetime. */
function lifetimes(machine: EdgeMachine): string {
  const shown = machine.sh("ip -o -4 address show dev eth0 dynamic");
  return shown.replaceAll(/inet (\S+)\/\d+/g, "ifname=eth0 local=$1 ");
}

function clientOf(machine: EdgeMachine): number {
  if (UNDER_UNITS) {
    const asked = ["show", "--value", "--property=MainPID", dhcpUnit("eth0")];
    return Number(execFileSync("systemctl", asked, { encoding: "utf8" }));
  }
  const file = join(placesOf(machine.lab.dir, machine.name).run, "dhcp-eth0.pid");
  try {
    return Number(readFileSync(file, "utf8").split(" ", 1)[0]);
  } catch {
    return 0;
  }
}
