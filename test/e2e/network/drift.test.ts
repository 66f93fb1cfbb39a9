import { join } from "node:path";
import { expect, test } from "vitest";
import { fileEnd } from "../../support/file-end.ts";
import { differences } from "../../support/network/machine-state.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { WrappedTools } from "../../support/network/wrapped-tools.ts";
import { sampleOf } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const WAN = { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" };
const stage = networkStage({ a: [] });
/** The kernel reports every change, long before the poll of each minute. */
const LIMIT_MS = 25_000;
const TIMES = 2;

/** Changes by other programs: the first, and a sample of the others. */
const [ROUTE, ...OTHERS] = [
  "ip route del 10.30.0.0/16 dev eth1 proto 218 && ip route replace 10.30.0.0/16 via 192.168.1.1",
  "nft flush table inet holdfast",
  "ip address del 10.9.0.1/24 dev eth1",
] as const;
const CHANGES = [ROUTE, ...sampleOf(OTHERS, 1, "changes by other programs")];

test("reverts and counts changes of our entries by other programs", async () => {
  const machine = stage.machine("a");
  await machine.apply({
    ...lanSection(WAN),
    routes: [{ dest: "10.30.0.0/16", dev: "eth1", via: "10.9.0.2" }],
    nats: [{ source: "10.9.0.0/24", masquerade: true }],
  });
  const ours = machine.state();
  const isBack = (): boolean => differences(ours, machine.state()).every((line) => line.includes(": + "));
  for (const line of CHANGES) {
    // More than the number of polls for other reasons after a change.
    for (let time = 1; time <= TIMES; time += 1) {
      const before = driftsOf(await machine.reported());
      machine.sh(line);
      // It may be reverted before the next poll.
      await waitFor("it is counted", async () => driftsOf(await machine.reported()) > before, LIMIT_MS);
      await waitFor(`${line} is reverted for the ${time}. time`, isBack, LIMIT_MS);
    }
  }
});

const before = { ...lanSection(WAN), nats: [{ source: "10.9.0.0/24", masquerade: true }] };
const after = {
  interfaces: [
    { ...WAN, addIps: ["192.168.1.20/24"] },
    { nic: "eth1", ip: "10.9.1.1/24", addIps: ["10.9.0.1/24"] },
  ],
  routes: [
    { dest: "10.30.0.0/16", dev: "eth1", via: "10.9.0.2" },
    { dest: "10.31.0.0/16", dev: "eth0", via: "192.168.1.1" },
  ],
  nats: [{ source: "10.9.1.0/24", masquerade: true }],
};

/** Lines of `ip -batch`, and of a table, that only the new network has. */
const NEW = [
  String.raw`^\(address\|route\) \+\(add\|replace\|prepend\|append\) .*\(192\.168\.1\.20\|10\.9\.1\.\|10\.3[01]\.\)`,
  String.raw`10\.9\.1\.0/24`,
].join("\n");

/** Failures of a tool, with their reason. */
const FAILURES = [
  { fail: (tools: WrappedTools) => tools.failAfter("ip", 0), named: /ip: / },
  { fail: (tools: WrappedTools) => tools.failAfter("nft", 0), named: /nft: / },
];
/** The agent has them from the first failure on. */
const tools = new WrappedTools(join(tempDir(fileEnd()), "tools"));

test("a tool that fails in the middle of a change leaves the old network, and the reason is reported", async () => {
  const machine = stage.machine("a");
  await machine.lab.endAgent("a");
  await machine.start(tools.within);
  await machine.untilOnline();
  for (const { fail, named } of sampleOf(FAILURES, 1, "failures of a tool")) {
    await machine.apply(before);
    const old = machine.state();
    const logged = machine.log().length;
    const { documents } = await machine.status();
    // A retry waits until the old network was seen.
    tools.hold(NEW);
    fail(tools);
    await machine.put(after);
    const since = (): string => machine.log().slice(logged);
    await waitFor("it is rolled back", () => since().includes('"msg":"restored"')).catch(() => undefined);
    const left = differences(old, machine.state());
    expect(since()).toMatch(named);
    expect(since()).toMatch(/"failed":\[\][^\n]*"msg":"restored"/);
    expect(left).toEqual([]);
    tools.release();
    await machine.untilSettled((documents.node?.version ?? 0) + 1);
    tools.leave();
    expect(differences(old, machine.state())).not.toEqual([]);
  }
});

test("an interface that disappears in the middle of a change affects nothing else, and returns with its addresses", async () => {
  const machine = stage.machine("a");
  await machine.apply(before);
  tools.interruptAfter("ip", 1, `${join("$d", "real", "ip")} link del eth1`);
  await machine.put(after);
  await waitFor("it is removed", () => !machine.paths().links.join("\n").includes("ifname=eth1"));
  tools.leave();
  await machine.untilOnline();
  expect(machine.reachesController()).toBe(true);
  expect(machine.paths().addresses.join("\n")).toContain("192.168.1.2");
  await waitFor("the node reports what it lacks", async () => {
    const { network } = (await machine.status()).sections;
    return JSON.stringify(network).includes("eth1");
  });
  machine.plugLan();
  await waitFor("the interface has its addresses again", () =>
    /ifname=eth1 .*local=10\.9\.0\.1 /.test(machine.paths().addresses.join("\n")),
  );
});

/** Returns the number of reverted changes of the section. */
function driftsOf(reported: Readonly<Record<string, unknown>>): number {
  return Number(reported["config.network.drift.count"] ?? 0);
}
