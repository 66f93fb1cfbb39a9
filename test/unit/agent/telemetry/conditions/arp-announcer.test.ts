import { expect, test } from "vitest";
import { startArpAnnouncer } from "../../../../../src/agent/telemetry/conditions/arp-announcer.ts";

import { FakeClock } from "../../../../support/fake-clock.ts";

type Held = { readonly link: string; readonly address: string };

const VIP: Held = { link: "eth1", address: "10.0.0.9" };
const OTHER: Held = { link: "eth1.10", address: "10.1.0.9" };

function stage() {
  const clock = new FakeClock();
  const machine = {
    held: [] as Held[],
    reported: [] as string[],
    failure: undefined as Error | undefined,
    changes: 0,
  };
  const announcer = startArpAnnouncer({
    clock,
    announce(link, address) {
      machine.reported.push(`${link} ${address}`);
      return machine.failure === undefined ? Promise.resolve() : Promise.reject(machine.failure);
    },
    held: () => machine.held,
    onChange: () => (machine.changes += 1),
  });
  return { clock, machine, announcer };
}

test("announces an address when it is taken, and every minute while it is held", async () => {
  const { clock, machine, announcer } = stage();
  announcer.refresh();
  await clock.advance(3_600_000);
  expect([machine.reported, clock.pendingTimers]).toEqual([[], 0]);
  machine.held = [VIP];
  announcer.refresh();
  await clock.advance(0);
  expect(machine.reported).toEqual(["eth1 10.0.0.9"]);
  announcer.refresh();
  await clock.advance(59_000);
  expect(machine.reported).toHaveLength(1);
  machine.held = [VIP, OTHER];
  announcer.refresh();
  await clock.advance(0);
  expect(machine.reported).toEqual(["eth1 10.0.0.9", "eth1.10 10.1.0.9"]);
  await clock.advance(1000);
  expect(machine.reported).toHaveLength(3);
  machine.held = [];
  announcer.refresh();
  await clock.advance(3_600_000);
  expect([machine.reported.length, clock.pendingTimers]).toEqual([3, 0]);
  // Announces again at once when it is taken again.
  machine.held = [VIP];
  announcer.refresh();
  await clock.advance(0);
  expect(machine.reported).toHaveLength(4);
  announcer.close();
  expect(clock.pendingTimers).toBe(0);
});

test("reports a failing announcement until it succeeds or is not needed", async () => {
  const { clock, machine, announcer } = stage();
  machine.held = [VIP];
  machine.failure = new Error("arping is not installed");
  announcer.refresh();
  await clock.advance(0);
  expect(announcer.conditions()).toMatchObject([
    { eventType: "Network Error", object: "announce:10.0.0.9", level: "WARNING" },
  ]);
  expect(announcer.conditions()[0]?.message).toContain("arping is not installed");
  expect(machine.changes).toBe(1);
  machine.failure = undefined;
  await clock.advance(60_000);
  expect([announcer.conditions(), machine.changes]).toEqual([[], 2]);
  machine.failure = new Error("again");
  await clock.advance(60_000);
  expect(announcer.conditions()).toHaveLength(1);
  machine.held = [];
  announcer.refresh();
  expect(announcer.conditions()).toEqual([]);
});
