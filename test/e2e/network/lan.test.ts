import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { placesOf } from "../../../scripts/labs/programs.ts";
import { dhcpUnit } from "../../../src/host/network/dhcp/dhcp-client.ts";
import { hastened } from "../../support/fake-time.ts";
import { UNDER_UNITS } from "../../support/machine/real-units.ts";
import { serveLeases } from "../../support/network/lease-server.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

const stage = networkStage({ a: [] });
const WAN = { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" };

interface Row {
  readonly trackerID: string;
  readonly hits: number;
  readonly initialHit: number | null;
}

/** So many of one length that they are looked up in another way than a few of various lengths. */
const OTHERS = Array.from({ length: 70 }, (_, at) => [
  { uid: `other-in-${at}`, dest: `10.128.${at}.0/24`, toDest: "192.168.1.0/24" },
  { uid: `other-out-${at}`, source: `10.129.${at}.0/24`, masquerade: true },
]).flat();

test("each translation counts its flows, for real packets, until it is reset", async () => {
  const machine = stage.machine("a");
  await machine.apply({
    ...lanSection(WAN),
    forwarding: true,
    nats: [
      { uid: "nat-in", dest: "10.44.0.0/24", toDest: "192.168.1.0/24" },
      { dest: "10.45.0.0/24", toDest: "192.168.1.0/24" },
      { uid: "nat-few", dest: "10.46.0.0/25", toDest: "192.168.1.0/25" },
      { uid: "nat-out", source: "10.9.0.0/24", masquerade: true },
      ...OTHERS,
      { uid: "nat-rest", masquerade: true },
    ],
  });
  const trigger = async (request: object): Promise<Record<string, unknown>> => {
    const path = `/node/${machine.uid}/trigger/nat-hits?wait=1`;
    const { status, text } = await machine.lab.ask("POST", path, request);
    expect(status, text).toBe(200);
    return JSON.parse(text) as Record<string, unknown>;
  };
  const hits = async (): Promise<Record<string, number>> => {
    const { nats } = (await trigger({ action: "GET" })) as { readonly nats: readonly Row[] };
    for (const { hits, initialHit } of nats) expect(initialHit === null).toBe(hits === 0);
    // The last one translates the node's own flows.
    return Object.fromEntries(
      nats.flatMap(({ trackerID, hits }) => (/^nat-rest$|^other-/.test(trackerID) ? [] : [[trackerID, hits]])),
    );
  };
  const none = { "nat-in": 0, "default:1": 0, "nat-few": 0, "nat-out": 0 };
  expect(await hits()).toEqual(none);

  const ping = (address: string): string => machine.sh(`ping -c 2 -i 0.2 -W 2 ${address}`, machine.lan);
  expect(ping("10.44.0.1")).toContain("2 received");
  expect(ping("10.44.0.1")).toContain("2 received");
  expect(ping("10.45.0.1")).toContain("2 received");
  expect(ping("10.46.0.1")).toContain("2 received");
  expect(ping("192.168.1.1")).toContain("2 received");
  // Two packets of one flow are one hit; each translated destination has its source translated too.
  expect(await hits()).toEqual({ ...none, "nat-in": 2, "default:1": 1, "nat-few": 1, "nat-out": 5 });
  expect((await machine.verb("nats", "nat-in")).stdout).toContain("192.168.1.0/24");

  expect(await trigger({ action: "RESET", trackerID: "nat-in" })).toEqual({ reset: 1 });
  expect(await hits()).toEqual({ ...none, "default:1": 1, "nat-few": 1, "nat-out": 5 });
  ping("10.44.0.1");
  expect(await hits()).toEqual({ ...none, "nat-in": 1, "default:1": 1, "nat-few": 1, "nat-out": 6 });
  expect(await trigger({ action: "RESET_ALL" })).toEqual({ reset: 5 + OTHERS.length });
  expect(await hits()).toEqual(none);
});

const FORWARDING = {
  ...lanSection(WAN),
  forwarding: true,
  nats: [{ source: "10.9.0.0/24", masquerade: true }],
};
const CONTROLLER = "203.0.113.10";
/** As made by dockerd with iptables-nft: jumps, the rules of its bridge, and a policy for the rest. */
const DOCKER = [
  "iptables-nft -N DOCKER-USER",
  "iptables-nft -A FORWARD -j DOCKER-USER",
  "iptables-nft -A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
  "iptables-nft -A FORWARD -i docker0 ! -o docker0 -j ACCEPT",
  "iptables-nft -P FORWARD DROP",
];
/** The end of firewalld's chain for zones without a target. */
const FIREWALLD = `table inet firewalld {
  chain filter_FORWARD_ZONES {
    return
  }
  chain filter_FORWARD {
    type filter hook forward priority filter + 10; policy accept;
    ct state { established, related } accept
    ct status dnat accept
    iifname "lo" accept
    ct state invalid drop
    jump filter_FORWARD_ZONES
    reject with icmpx admin-prohibited
  }
}`;
test("a chain that drops forwarded packets is named, left alone, and no longer named when removed", async () => {
  const machine = stage.machine("a");
  // A condition is reported once it has lasted a while. The next test has this agent too.
  await machine.lab.endAgent("a");
  await machine.start(hastened(3));
  await machine.own(FORWARDING);
  const passes = (): boolean =>
    machine.sh(`ping -c 1 -W 2 ${CONTROLLER} || true`, machine.lan).includes(" 0% packet loss");
  const why = async (): Promise<string> => (await machine.verb("why")).stdout;
  const untilPrinted = (what: string, holds: (printed: string) => boolean): Promise<boolean> =>
    waitFor(what, async () => holds(await why()));
  expect(passes()).toBe(true);
  expect(await why()).not.toContain("forward-dropped");

  machine.sh(DOCKER.join(" && "));
  expect(passes()).toBe(false);
  await untilPrinted("Docker's chain is named", (printed) =>
    /FORWARD of the table ip filter.*policy drop/.test(printed),
  );
  expect((await machine.verb("why")).code).toBe(0);
  const isReported = async (): Promise<boolean> => JSON.stringify(await machine.reported()).includes("forward-dropped");
  await waitFor("it is reported", isReported);
  const kept = machine.sh("nft -s list table ip filter");

  machine.sh(`nft -f - <<'END'\n${FIREWALLD}\nEND`);
  machine.sh("iptables-nft -P FORWARD ACCEPT");
  await untilPrinted(
    "firewalld's chain is named, and Docker's not any more",
    (output) => /filter_FORWARD of the table inet firewalld.*reject/.test(output) && !output.includes("ip filter"),
  );
  expect(passes()).toBe(false);
  expect(machine.sh("nft -s list table ip filter")).toBe(kept.replace("policy drop", "policy accept"));

  machine.sh("nft delete table inet firewalld");
  await untilPrinted("nobody is named", (printed) => !printed.includes("forward-dropped"));
  expect(passes()).toBe(true);
}, 420_000);

const STATIC = { interfaces: [WAN, { nic: "eth1", ip: "10.9.0.1/24" }] };

test("an interface changes from its address to DHCP and back, keeps its address until there is a lease, and a new agent adopts the client", async () => {
  const machine = stage.machine("a");
  await machine.apply(STATIC);
  const own = (): readonly string[] =>
    machine
      .paths()
      .addresses.flatMap((line) => (line.includes("ifname=eth1 ") ? (/ local=(\S+)/.exec(line)?.[1] ?? []) : []));
  const client = (): string =>
    UNDER_UNITS
      ? execFileSync("systemctl", ["show", "--value", "--property=MainPID", dhcpUnit("eth1")], {
          encoding: "utf8",
        }).trim()
      : (readFileSync(join(placesOf(machine.lab.dir, "a").run, "dhcp-eth1.pid"), "utf8").split(" ", 1)[0] ?? "");
  const states = async (): Promise<readonly unknown[]> => {
    const events = await machine.events();
    return events.flatMap(({ message, state }) =>
      String(message).includes("lease") ? [`${String(state)}: ${String(message)}`] : [],
    );
  };
  const before = machine.state();
  expect(own()).toEqual(["10.9.0.1"]);

  await machine.put({ interfaces: [WAN, { nic: "eth1", dhcp: true }] });
  const waiting = await waitFor("it waits for a lease", async () => {
    const { network } = (await machine.status()).sections;
    return network?.state === "pending" ? network : undefined;
  });
  expect(waiting.issues.join("\n")).toContain("no DHCP server has answered on eth1 yet");
  expect(own()).toEqual(["10.9.0.1"]);
  await waitFor("that is reported", async () =>
    (await states()).some((text) => String(text).includes("lease failure")),
  );

  await serveLeases(machine, "10.9.0.100");
  await waitFor("there is a lease, and nothing else", () => own().join(" ") === "10.9.0.100");
  await machine.untilSettled();
  await waitFor("its end is reported", async () =>
    (await states()).some((text) => String(text).includes("was obtained")),
  );

  // The server names itself as the gateway; only a WAN has a default route.
  expect(machine.sh("ip -4 route show default")).toMatch(/^default via 192\.168\.1\.1 dev eth0 [^\n]*\n$/);

  const pid = client();
  await machine.lab.endAgent("a", "SIGKILL");
  await machine.start();
  await machine.untilSettled();
  expect(client()).toBe(pid);
  process.kill(Number(pid), 0);
  expect(own()).toEqual(["10.9.0.100"]);

  await machine.apply(STATIC);
  // A value that dhcpcd sets by itself.
  await machine.untilAs(before, 30_000, (line) => line.includes("/conf/eth1/promote_secondaries:"));
  await waitFor("the client has ended", () => !machine.lab.network.pids("a").includes(Number(pid)));
});
