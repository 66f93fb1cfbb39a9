import { join } from "node:path";
import { expect, test } from "vitest";
import { differences } from "../../support/network/machine-state.ts";
import type { EdgeMachine } from "../../support/network/edge-machine.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";
import { WrappedTools } from "../../support/network/wrapped-tools.ts";

const WAN = { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" };
const stage = networkStage({ lines: [], table: [], vanishing: [] });

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

/** Starts its agent with tools that fail on request, and applies the old network. */
async function withTools(name: string): Promise<readonly [EdgeMachine, WrappedTools]> {
  const machine = stage.machine(name);
  const tools = new WrappedTools(join(tempDir(), "tools"));
  await machine.lab.endAgent(name);
  await machine.start(tools.within);
  await machine.untilOnline();
  await machine.apply(before);
  return [machine, tools];
}

/** Failures of a tool, by name, with their reason. */
const WAYS: Readonly<Record<string, { readonly fail: (tools: WrappedTools) => void; readonly named: RegExp }>> = {
  lines: { fail: (tools) => tools.failAfter("ip", 0), named: /ip: / },
  table: { fail: (tools) => tools.failAfter("nft", 0), named: /nft: / },
};

test("a tool that fails in the middle of a change leaves the old network, and the reason is reported", async () => {
  const outcomes = await Promise.all(
    Object.entries(WAYS).map(async ([name, { fail, named }]) => {
      const [machine, tools] = await withTools(name);
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
      const log = since();
      if (!named.test(log) || !/"failed":\[\][^\n]*"msg":"restored"/.test(log)) return `${name}: ${log}`;
      if (left.length > 0) return `${name}: ${left.join(", ")}`;
      tools.release();
      await machine.untilSettled((documents.node?.version ?? 0) + 1);
      return differences(old, machine.state()).length > 0 ? `${name}: fine` : `${name}: not tried again`;
    }),
  );
  expect(outcomes).toEqual(Object.keys(WAYS).map((name) => `${name}: fine`));
});

test("an interface that disappears in the middle of a change affects nothing else, and returns with its addresses", async () => {
  const [machine, tools] = await withTools("vanishing");
  tools.interruptAfter("ip", 1, `${join("$d", "real", "ip")} link del eth1`);
  await machine.put(after);
  await waitFor("it is removed", () => !machine.paths().links.join("\n").includes("ifname=eth1"));
  tools.leave();
  await machine.untilOnline();
  expect(machine.reachesController()).toBe(true);
  expect(machine.paths().addresses.join("\n")).toContain("192.168.1.2");
  await waitFor("the node says what it lacks", async () => {
    const { network } = (await machine.status()).sections;
    return JSON.stringify(network).includes("eth1");
  });
  machine.plugLan();
  await waitFor("the interface has its addresses again", () =>
    /ifname=eth1 .*local=10\.9\.0\.1 /.test(machine.paths().addresses.join("\n")),
  );
});
