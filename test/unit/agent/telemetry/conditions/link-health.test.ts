import { describe, expect, test } from "vitest";
import { createEventLog } from "../../../../../src/agent/telemetry/events.ts";
import type { OpenEvent } from "../../../../../src/agent/telemetry/events.ts";
import { startLinkMonitor } from "../../../../../src/agent/telemetry/conditions/link-health.ts";
import type { LinkReadings } from "../../../../../src/agent/telemetry/conditions/link-health.ts";
import type { LinkAddress } from "../../../../../src/host/network/ip/links.ts";
import type { NodeEvent } from "../../../../../src/protocol/documents/telemetry.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { link } from "../../../../support/network/machine-readings.ts";

const DOWN = { operState: "down", hasCarrier: false } as const;
const addressOf = (name: string, address: string): LinkAddress => ({ link: name, family: 4, address, prefix: 24 });

function monitor(first: LinkReadings, open: readonly OpenEvent[] = []) {
  const clock = new FakeClock();
  const events: NodeEvent[] = [];
  const eventLog = createEventLog({ clock, sink: (event) => events.push(event), open });
  let readings = first;
  const watch = startLinkMonitor({ clock, read: () => readings, events: eventLog });
  return {
    clock,
    watch,
    messages: () => events.map(({ level, state, message }) => `${level} ${state} ${message}`),
    eventLog,
    see: (links: LinkReadings["links"], addresses: readonly LinkAddress[] = []) => {
      readings = { links, addresses };
      watch.check();
    },
  };
}

/** Advances past the quiet minute after a start. */
async function settled(first: LinkReadings) {
  const running = monitor(first);
  await running.clock.advance(60_000);
  return running;
}

test("a link that goes down and up gives one event each, five seconds later", async () => {
  const { clock, see, messages } = await settled({ links: [link("eth0")], addresses: [] });
  see([link("eth0", DOWN)]);
  await clock.advance(4999);
  expect(messages()).toEqual([]);
  await clock.advance(1);
  expect(messages()).toEqual(["ERROR EXCEEDED Interface eth0 is down"]);
  see([link("eth0")]);
  await clock.advance(5000);
  expect(messages().slice(1)).toEqual(["INFO CLEARED All interfaces are up"]);
  expect(clock.pendingTimers).toBe(0);
});

test("a link that flaps faster than five seconds gives no event", async () => {
  const { clock, see, messages } = await settled({ links: [link("eth0")], addresses: [] });
  for (let count = 0; count < 10; count += 1) {
    see([link("eth0", DOWN)]);
    await clock.advance(3000);
    see([link("eth0")]);
    await clock.advance(1000);
  }
  expect(messages()).toEqual([]);
});

test("gives no event in the first minute, and then raises what is still true", async () => {
  const { clock, see, messages } = monitor({ links: [link("eth0"), link("eth1")], addresses: [] });
  see([link("eth0", DOWN), link("eth1", DOWN)]);
  await clock.advance(30_000);
  see([link("eth0", DOWN), link("eth1")]);
  await clock.advance(29_999);
  expect(messages()).toEqual([]);
  await clock.advance(1);
  expect(messages()).toEqual(["ERROR EXCEEDED Interface eth0 is down"]);
});

test("of two links that are down, the last one up reports that all are up", async () => {
  const { clock, see, messages } = await settled({ links: [link("eth0"), link("eth1")], addresses: [] });
  see([link("eth0", DOWN), link("eth1", DOWN)]);
  await clock.advance(5000);
  see([link("eth0"), link("eth1", DOWN)]);
  await clock.advance(5000);
  see([link("eth0"), link("eth1")]);
  await clock.advance(5000);
  expect(messages().slice(2)).toEqual([
    "INFO CLEARED Interface eth0 is no longer down",
    "INFO CLEARED All interfaces are up",
  ]);
});

describe("raises no event", () => {
  test("for a port that was never up", async () => {
    const { clock, messages } = await settled({ links: [link("eth3", DOWN)], addresses: [] });
    await clock.advance(60_000);
    expect(messages()).toEqual([]);
  });

  test("for a link that only had a link-local address", async () => {
    const { clock, see, messages } = await settled({
      links: [link("eth0")],
      addresses: [addressOf("eth0", "169.254.7.7")],
    });
    see([link("eth0", DOWN)]);
    await clock.advance(10_000);
    expect(messages()).toEqual([]);
  });

  test("for a link that was switched off", async () => {
    const { clock, see, messages } = await settled({
      links: [link("eth0")],
      addresses: [addressOf("eth0", "192.0.2.1")],
    });
    see([link("eth0", { ...DOWN, isEnabled: false })]);
    await clock.advance(10_000);
    expect(messages()).toEqual([]);
  });
});

test("clears the event of a removed link", async () => {
  const { clock, see, messages } = await settled({ links: [link("eth0")], addresses: [] });
  see([link("eth0", DOWN)]);
  await clock.advance(5000);
  see([]);
  expect(messages().slice(1)).toEqual(["INFO CLEARED All interfaces are up"]);
  see([link("eth0", DOWN)]);
  await clock.advance(10_000);
  expect(messages().length).toBe(2);
});

test("reports half duplex, until it is full", async () => {
  const { clock, see, messages } = await settled({ links: [link("eth0", { duplex: "half" })], addresses: [] });
  expect(messages()).toEqual(["WARNING EXCEEDED Interface eth0 is running with half-duplex"]);
  see([link("eth0")]);
  await clock.advance(5000);
  expect(messages().slice(1)).toEqual(["INFO CLEARED Interface eth0 is no longer running with half-duplex"]);
});

test("after a restart does not raise again a link that is still down, and clears one that is up", async () => {
  const before = await settled({ links: [link("eth0")], addresses: [] });
  before.see([link("eth0", DOWN)]);
  await before.clock.advance(5000);
  const after = monitor({ links: [link("eth0", DOWN)], addresses: [] }, before.eventLog.openEvents());
  await after.clock.advance(120_000);
  expect(after.messages()).toEqual([]);
  after.see([link("eth0")]);
  await after.clock.advance(5000);
  expect(after.messages()).toEqual(["INFO CLEARED All interfaces are up"]);
});

test("after a restart clears the event of a link that appears later, and not before", async () => {
  const before = await settled({ links: [link("eth0")], addresses: [] });
  before.see([link("eth0", DOWN)]);
  await before.clock.advance(5000);
  const after = monitor({ links: [], addresses: [] }, before.eventLog.openEvents());
  await after.clock.advance(120_000);
  expect(after.messages()).toEqual([]);
  after.see([link("eth0")]);
  await after.clock.advance(5000);
  expect(after.messages()).toEqual(["INFO CLEARED All interfaces are up"]);
});

test("leaves no timer after closing", async () => {
  const { clock, see, watch } = await settled({ links: [link("eth0")], addresses: [] });
  see([link("eth0", DOWN)]);
  watch.close();
  expect(clock.pendingTimers).toBe(0);
});
