import { expect, test } from "vitest";
import { NetworkKills, type Section } from "../../support/network/network-kills.ts";
import { serveLeases } from "../../support/network/lease-server.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { isDue, sampleOf } from "../../support/sample.ts";

const isLeaseDue = isDue("kill points of a leased address");
const stage = networkStage(isLeaseDue ? { a: [], b: [] } : { a: [] });

const before: Section = {
  interfaces: [
    { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1", addIps: ["192.168.1.20/24"] },
    { nic: "eth1", ip: "10.9.0.1/24", routes: [{ route: "10.20.0.0/16", next: "10.9.0.2" }] },
  ],
  routes: [
    { dest: "10.30.0.0/16", dev: "eth1", via: "10.9.0.2" },
    { dest: "10.31.0.0/16", dev: "eth1", via: "10.9.0.2", metric: 20 },
  ],
  darkMode: true,
};
/** Entries of every kind are added, removed and kept. */
const after: Section = {
  interfaces: [
    { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1", addIps: ["192.168.1.21/24"] },
    { nic: "eth1", ip: "10.9.1.1/24", mtu: 1400, addIps: ["10.9.0.1/24"], vrf: "red" },
  ],
  vrfs: [{ name: "red", forwarding: true, routes: [{ dest: "10.40.0.0/16", dev: "eth1", via: "10.9.0.2" }] }],
  routes: [{ dest: "10.32.0.0/16", dev: "eth0", via: "192.168.1.1" }],
  rules: [{ protocol: "tcp", source: "private", dest: "10.50.0.0/16", action: "drop" }],
  forwarding: true,
};

test("a change that is killed anywhere leaves the old network or the new one, whatever starts next", async () => {
  const kills = new NetworkKills(stage.machine("a"), before, after);
  const points = await kills.record();
  const change = kills.change();
  for (const part of ["links", "addresses", "routes", "rules", "nftables", "sysctls"]) {
    expect(
      change.some((line) => line.startsWith(`${part}:`)),
      `${part} change: ${change.join("\n")}`,
    ).toBe(true);
  }
  const sample = sampleOf(points, 3, "network");
  const { failures, text } = await kills.killAtEach(sample);
  console.log(`network kill points: ${text}; there are ${points.length}`);
  expect(failures).toEqual([]);
  expect(points.length).toBeGreaterThan(50);
}, 3_600_000);

test.runIf(isLeaseDue)(
  "a leased address in transition is leased or permanent after a kill, never neither",
  async () => {
    const machine = stage.machine("b");
    const gateway = "192.168.1.1";
    const leased = lanSection({ nic: "eth0", dhcp: true });
    const lasting = lanSection({ nic: "eth0", ip: "192.168.1.100/24", gateway });
    await machine.own(lanSection({ nic: "eth0", ip: "192.168.1.2/24", gateway }));
    const stop = await serveLeases(machine, "192.168.1.100", { of: "wan" });
    const kills = new NetworkKills(machine, leased, lasting, { settledWithinMs: 180_000 });
    const points = await kills.record();
    expect(kills.change().some((line) => /^addresses: - .*dynamic=true.* local=192\.168\.1\.100 /.test(line))).toBe(
      true,
    );
    const sample = sampleOf(points, 2, "lease");
    // Under systemd a client outlives its agent, but not a machine that runs out of memory.
    const { failures, text } = await kills.killAtEach(sample, (at) => (at % 4 === 0 || at % 4 === 3 ? [] : ["dhcpcd"]));
    console.log(`lease kill points: ${text}; there are ${points.length}`);
    expect(failures).toEqual([]);
    expect(points.length).toBeGreaterThan(30);
    stop();
  },
  3_600_000,
);
