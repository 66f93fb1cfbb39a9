import { expect, test } from "vitest";
import { NetworkKills } from "../../support/network/network-kills.ts";
import { serveLeases } from "../../support/network/lease-server.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { sampleOf } from "../../support/sample.ts";

const stage = networkStage({ a: [] });

const GATEWAY = "192.168.1.1";
const leased = lanSection({ nic: "eth0", dhcp: true });
const lasting = lanSection({ nic: "eth0", ip: "192.168.1.100/24", gateway: GATEWAY });

test("a leased address in transition is leased or permanent after a kill, never neither", async () => {
  const machine = stage.machine("a");
  await machine.own(lanSection({ nic: "eth0", ip: "192.168.1.2/24", gateway: GATEWAY }));
  const stop = await serveLeases(machine, "192.168.1.100", { of: "wan" });
  const kills = new NetworkKills(machine, leased, lasting, { settledWithinMs: 180_000 });
  const points = await kills.record();
  expect(kills.change().some((line) => /^addresses: - .*dynamic=true.* local=192\.168\.1\.100 /.test(line))).toBe(true);
  const sample = sampleOf(points, 4, "lease");
  // Under systemd a client outlives its agent, but not a machine that runs out of memory.
  const { failures, text } = await kills.killAtEach(sample, (at) => (at % 4 < 2 ? [] : ["dhcpcd"]));
  console.log(`lease kill points: ${text}; there are ${points.length}`);
  expect(failures).toEqual([]);
  expect(points.length).toBeGreaterThan(30);
  stop();
}, 3_600_000);
