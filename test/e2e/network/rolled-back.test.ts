import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Site } from "../../../scripts/labs/layout.ts";
import { placesOf } from "../../../scripts/labs/programs.ts";
import { NetworkRecord } from "../../../src/host/network/state/record.ts";
import { atOnce } from "../../support/at-once.ts";
import { serveLeases } from "../../support/network/lease-server.ts";
import { differences, type MachineState } from "../../support/network/machine-state.ts";
import { WINDOW_SECONDS, type EdgeMachine } from "../../support/network/edge-machine.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { isDue, sampleOf } from "../../support/sample.ts";
import { waitFor } from "../../support/wait-for.ts";

/** A change that cuts the node off, on a machine of its own: all wait for their windows at the same time. */
interface Fault {
  readonly machine: string;
  readonly why: string;
  readonly section: object;
  /** Prepares the surroundings of the machine. */
  readonly before?: (machine: EdgeMachine) => void | Promise<void>;
  /** Pattern of the evidence. */
  readonly evidence: RegExp;
  /** Another host of its site. */
  readonly other?: Site["others"][number];
}

const WAN = { nic: "eth0", ip: "192.168.1.2/24" };
const OWN = { ...WAN, gateway: "192.168.1.1" };
const CONTROLLER = "203.0.113.10";
/** A host that is up and forwards nothing. */
const DEAD_END = "192.168.1.9";
/** Seconds in which a busy machine connects, too. */
const SURELY = 60;

const WRONG_GATEWAY: Fault = {
  machine: "wrong",
  why: "a gateway that is none",
  section: lanSection({ ...WAN, gateway: "192.168.1.99" }),
  evidence: /control plane/,
};
const OTHER_FAULTS: readonly Fault[] = [
  {
    machine: "wall",
    why: "a firewall that lets nothing of the control plane in",
    section: {
      ...lanSection(OWN),
      rules: [{ protocol: "any", source: `${CONTROLLER}/32`, dest: "0.0.0.0/0", action: "drop" }],
    },
    evidence: /control plane/,
  },
  {
    machine: "moved",
    why: "an address in a network that is not there",
    section: lanSection({ nic: "eth0", ip: "172.31.7.2/24", gateway: "172.31.7.1" }),
    evidence: /control plane/,
  },
  {
    machine: "portal",
    why: "a router with a captive portal in the way",
    section: lanSection({ ...WAN, gateway: DEAD_END }),
    before: openPortal,
    other: { name: "portal-box", last: 9 },
    evidence: /control plane/,
  },
  {
    machine: "twin",
    why: "an address that another machine has",
    section: lanSection({ nic: "eth0", ip: "192.168.1.5/24", gateway: "192.168.1.1" }),
    before: claimAddress,
    other: { name: "twin-box", last: 5 },
    evidence: /control plane|address/,
  },
];

const FAULTS = [WRONG_GATEWAY, ...(isDue("network faults") ? sampleOf(OTHER_FAULTS, 1, "network faults") : [])];
/** Interruptions of a change by what happens to its agent. */
const INTERRUPTIONS = {
  killed,
  ...Object.fromEntries(sampleOf(Object.entries({ hung, rebooted, newer }), 1, "network interruptions")),
};
/** What is on the machine, or changes, beside a change that is rolled back. */
const OTHERS_ENTRIES = { programs, ...(isDue("a lease during a pending change") ? { lease } : {}) };

const boxOf = (name: string) => [{ name: `${name}-box`, last: 9 }];
const stage = networkStage({
  ...Object.fromEntries(FAULTS.map(({ machine, other }) => [machine, other === undefined ? [] : [other]])),
  ...Object.fromEntries(Object.keys({ ...OTHERS_ENTRIES, ...INTERRUPTIONS }).map((name) => [name, boxOf(name)])),
});

test.concurrent("a change that cuts the node off is rolled back in time, and the control plane gets the reason", async () => {
  await atOnce(FAULTS, ({ why }) => why, suffer);
});

test.concurrent("what other programs have on the machine, and on some days a lease that changes meanwhile, survive a change that is rolled back", async () => {
  await onOwnMachines(OTHERS_ENTRIES);
}, 600_000);

test.concurrent("whatever happens to the agent in the middle of a change, the old network is restored by itself", async () => {
  await onOwnMachines(INTERRUPTIONS);
}, 600_000);

/** Runs cases at the same time, each on the machine of its name. */
function onOwnMachines(cases: Readonly<Record<string, (machine: EdgeMachine) => Promise<void>>>): Promise<void> {
  return atOnce(
    Object.entries(cases),
    ([name]) => name,
    ([name, run]) => run(stage.machine(name)),
  );
}

async function suffer({ machine: name, section, before, evidence }: Fault): Promise<void> {
  const machine = stage.machine(name);
  await machine.own(lanSection(OWN));
  await before?.(machine);
  const good = machine.state();
  const { documents } = await machine.status();
  const { status, text } = await machine.put(section);
  if (status !== 200) throw new Error(`HTTP ${status}: ${text}`);
  const begun = performance.now();
  await waitFor("the change is made", () => machine.differsFrom(good).length > 0);
  await machine.untilAs(good, (WINDOW_SECONDS + 15) * 1000);
  const tookMs = performance.now() - begun;
  if (tookMs > (WINDOW_SECONDS + 10) * 1000) throw new Error(`taken back only after ${tookMs} ms`);
  const reported = await waitFor("the control plane knows", async () => {
    const events = JSON.stringify(await machine.events());
    return evidence.test(events) && /was reverted/i.test(events) ? events : undefined;
  });
  expect(reported).toMatch(evidence);
  const refused = (documents.node?.version ?? 0) + 1;
  await waitFor("it is refused", async () => (await machine.status()).documents.node?.refused === refused);
  // Another pass changes nothing.
  expect(differences(good, machine.state())).toEqual([]);
}

/** Makes a host of the site answer all requests, in the name of their targets. */
async function openPortal(machine: EdgeMachine): Promise<void> {
  const box = machine.lab.network.on("portal-box");
  machine.sh("echo 1 > /proc/sys/net/ipv4/ip_forward", box);
  machine.sh("nft add table ip portal", box);
  machine.sh("nft 'add chain ip portal way { type nat hook prerouting priority dstnat; }'", box);
  machine.sh("nft add rule ip portal way ip daddr 203.0.113.0/24 tcp dport 1-65535 redirect to :8443", box);
  await machine.startPortal("portal-box", 8443);
}

/** Makes the router believe who has the address, as after an ARP reply. */
function claimAddress(machine: EdgeMachine): void {
  const mac = machine.sh("cat /sys/class/net/eth0/address", machine.lab.network.on("twin-box")).trim();
  machine.sh(`ip neigh replace 192.168.1.5 lladdr ${mac} dev lan nud permanent`, machine.router);
}

/** Entries of other programs: Docker, firewalld, FRR, and manual rules. */
const STRANGERS = `
ip link add docker0 type bridge
ip address add 172.17.0.1/16 dev docker0
ip link set docker0 up
ip route add 10.61.0.0/16 via 192.168.1.1 proto bgp metric 20
ip route add 10.62.0.0/16 via 192.168.1.1 proto zebra metric 20
ip route add 10.63.0.0/16 via 192.168.1.1 proto ospf metric 110
ip route add 10.30.0.0/16 via 192.168.1.1 proto 188
ip route add 10.64.0.0/16 via 192.168.1.1 table 52
ip rule add priority 5179 from 10.65.0.0/16 table 52
ip rule add priority 5500 from 10.66.0.0/16 table 52
ip rule add priority 6000 fwmark 0x4 table 52
ip address add 192.168.1.77/24 dev eth0
`;
const FILTERS = `
table ip nat {
  chain DOCKER { iifname "docker0" return; }
  chain PREROUTING { type nat hook prerouting priority dstnat; fib daddr type local jump DOCKER; }
  chain POSTROUTING { type nat hook postrouting priority srcnat; oifname != "docker0" ip saddr 172.17.0.0/16 masquerade; }
}
table ip filter {
  chain DOCKER-USER { return; }
  chain FORWARD { type filter hook forward priority filter; policy accept; jump DOCKER-USER; }
}
table inet firewalld {
  set known { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.2 } }
  chain filter_INPUT { type filter hook input priority filter + 10; ip saddr @known accept; }
}
`;

/** Returns lost entries, except settings that a section may adjust; ours may precede the others. */
function lost(before: MachineState, after: MachineState): readonly string[] {
  const { routes } = after;
  const unplaced = { ...after, routes: routes.map((line) => line.replace(/ place=\d+/, "")) };
  return differences(before, unplaced).filter(
    (line) => !/protocol=218|label=\w+:hf/.test(line) && /^(?:addresses|routes|rules|nftables): - /.test(line),
  );
}

async function lookAround(machine: EdgeMachine): Promise<MachineState> {
  for (const line of STRANGERS.trim().split("\n")) machine.sh(line);
  machine.sh(
    `nft -f - <<'END'\n${FILTERS.replaceAll("; }", "\n}").replaceAll("{ ", "{\n").replaceAll("; ", "\n")}\nEND`,
  );
  let last = machine.state();
  return waitFor("nothing changes any more", () => {
    const state = machine.state();
    const isStill = differences(last, state).length === 0;
    last = state;
    return isStill && state;
  });
}

/** Entries of other programs stay, whatever is applied, rolled back or removed. */
async function programs(machine: EdgeMachine): Promise<void> {
  // A new namespace copies this from the tests' own, where a container engine may have enabled it.
  for (const name of ["all", "default", "eth0", "eth1"])
    machine.sh(`echo 0 > /proc/sys/net/ipv4/conf/${name}/forwarding`);
  await machine.own(lanSection(OWN));
  const begun = await lookAround(machine);
  const section = {
    ...lanSection({ ...OWN, addIps: ["192.168.1.20/24"] }),
    // The same destination as a route of FRR.
    routes: [{ dest: "10.30.0.0/16", dev: "eth1", via: "10.9.0.2" }],
    nats: [{ source: "10.9.0.0/24", masquerade: true }],
    acls: [{ protocol: "any", source: "0.0.0.0/0", dest: "0.0.0.0/0", action: "allow" }],
    rules: [{ protocol: "tcp", source: "10.9.0.0/24", dest: "public", action: "forward", iface: "eth0" }],
  };
  await machine.apply(section);
  const applied = machine.state();
  expect(lost(begun, applied)).toEqual([]);
  // Ours precedes, and the other one still exists.
  expect(machine.sh("ip route get 10.30.0.1")).toContain("via 10.9.0.2");

  const { documents } = await machine.status();
  await machine.put({ ...section, interfaces: [{ ...OWN, gateway: DEAD_END }, section.interfaces[1]] });
  await waitFor("the change is made", () => machine.differsFrom(applied).length > 0);
  expect(lost(begun, machine.state())).toEqual([]);
  await machine.untilAs(applied, (WINDOW_SECONDS + 15) * 1000);
  const refused = (documents.node?.version ?? 0) + 1;
  await waitFor("it is refused", async () => (await machine.status()).documents.node?.refused === refused);

  await machine.apply(lanSection(OWN));
  const removed = machine.state();
  expect(lost(begun, removed)).toEqual([]);
  const left = differences(begun, removed).filter((line) => /^(?:routes|rules|nftables): \+ /.test(line));
  expect(left.filter((line) => !line.includes("protocol=218 ") && !line.endsWith("protocol=218"))).toEqual([]);
}

/** A lease that changes during a pending change is the new one afterwards, and the rest is unchanged. */
async function lease(machine: EdgeMachine): Promise<void> {
  const stop = await serveLeases(machine, "10.9.0.100");
  const section = { interfaces: [OWN, { nic: "eth1", dhcp: true }] };
  await machine.own(section);
  const hasLease = (address: string) => (): boolean =>
    machine.paths().addresses.some((line) => line.includes("ifname=eth1") && line.includes(`local=${address} `));
  await waitFor("there is a lease", hasLease("10.9.0.100"));
  const old = machine.state();

  await machine.put({ interfaces: [{ ...OWN, gateway: DEAD_END }, section.interfaces[1]] });
  await waitFor("the change is made", () => machine.differsFrom(old).length > 0);
  stop();
  await serveLeases(machine, "10.9.0.150");
  // After a cable was unplugged and plugged, every client requests again.
  machine.sh(
    "ip link set eth0 down && sleep 1 && ip link set eth0 up && ip route replace default via 10.9.0.1 || true",
    machine.lan,
  );
  await waitFor("there is another lease", hasLease("10.9.0.150"));
  await machine.untilAs(old, (WINDOW_SECONDS + 30) * 1000, (line) => /eth1|10\.9\.0\./.test(line));
  expect(hasLease("10.9.0.150")()).toBe(true);
  expect(hasLease("10.9.0.100")()).toBe(false);
  await machine.untilOnline();
}

interface Begun {
  readonly good: MachineState;
  /** The records about the machine then. */
  readonly noted: string;
  /** Version of the document that cuts the node off. */
  readonly version: number;
}

/** Makes a change that cannot be verified, and returns the state before it. */
async function inTheWindow(machine: EdgeMachine): Promise<Begun> {
  await machine.own(lanSection(OWN));
  const { documents } = await machine.status();
  const good = machine.state();
  const noted = recordOf(machine);
  await machine.put({ ...lanSection({ ...OWN, mtu: 1400, gateway: DEAD_END }), forwarding: true });
  // A connection may take a busy machine too long before the change, too.
  await waitFor("the change is made", () => recordOf(machine) !== noted && !machine.reachesController());
  return { good, noted, version: (documents.node?.version ?? 0) + 1 };
}

const recordOf = (machine: EdgeMachine): string => {
  const { body } = JSON.parse(
    readFileSync(join(placesOf(machine.lab.dir, machine.name).state, "network-record.json"), "utf8"),
  ) as { readonly body: unknown };
  return JSON.stringify(NetworkRecord.parse(body));
};

const untilAsBefore = (machine: EdgeMachine, { good }: Begun): Promise<void> =>
  machine.untilAs(good, (WINDOW_SECONDS + 15) * 1000);

/** Expects one retry of the interrupted change, and its refusal. */
async function isRefusedInTheEnd(machine: EdgeMachine, begun: Begun): Promise<void> {
  await untilReported(machine);
  const isRefused = async (): Promise<boolean> => (await machine.status()).documents.node?.refused === begun.version;
  await waitFor(`${machine.name} refuses it`, isRefused, 240_000);
  expect(differences(begun.good, machine.state())).toEqual([]);
  expect(machine.reachesController(SURELY)).toBe(true);
}

async function killed(machine: EdgeMachine): Promise<void> {
  const begun = await inTheWindow(machine);
  await machine.lab.endAgent(machine.name, "SIGKILL");
  await untilAsBefore(machine, begun);
  expect(machine.reachesController(SURELY)).toBe(true);
  expect(machine.lab.pidOf(machine.name, "agent")).toBeUndefined();
  await waitFor("what was noted is as it was", () => recordOf(machine) === begun.noted);
  await machine.start();
  await isRefusedInTheEnd(machine, begun);
}

async function hung(machine: EdgeMachine): Promise<void> {
  const begun = await inTheWindow(machine);
  const pid = machine.lab.pidOf(machine.name, "agent") ?? 0;
  process.kill(pid, "SIGSTOP");
  await untilAsBefore(machine, begun);
  process.kill(pid, "SIGCONT");
  await isRefusedInTheEnd(machine, begun);
  expect(machine.lab.pidOf(machine.name, "agent")).toBe(pid);
}

async function rebooted(machine: EdgeMachine): Promise<void> {
  const begun = await inTheWindow(machine);
  await machine.cutPower();
  machine.boot();
  const { code, stderr } = await machine.restore();
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  await machine.start();
  await isRefusedInTheEnd(machine, begun);
}

async function newer(machine: EdgeMachine): Promise<void> {
  const begun = await inTheWindow(machine);
  // Nothing arrives over this network, so the next version comes when the old one is back.
  await machine.put(lanSection({ ...OWN, mtu: 1400 }));
  await machine.untilSettled(begun.version + 1, 240_000);
  expect(machine.paths().links.join("\n")).toContain("mtu=1400");
  expect(machine.reachesController(SURELY)).toBe(true);
}

/** Waits until the control plane has the report of the rollback. */
function untilReported(machine: EdgeMachine): Promise<unknown> {
  return waitFor(`the control plane knows of ${machine.name}`, async () =>
    /was reverted/i.test(JSON.stringify(await machine.events())),
  );
}
