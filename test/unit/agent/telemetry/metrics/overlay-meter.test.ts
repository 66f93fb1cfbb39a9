import { expect, test } from "vitest";
import { createEventLog, type OpenEvent } from "../../../../../src/agent/telemetry/events.ts";
import { overlayMeter, type OverlayCounters } from "../../../../../src/agent/telemetry/metrics/overlay-meter.ts";
import type { ListenerCounters } from "../../../../../src/protocol/overlay/overlay.ts";
import type { NodeEvent } from "../../../../../src/protocol/documents/telemetry.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";

type Kinds = ListenerCounters["refusals"];

function setUp(open: readonly OpenEvent[] = []) {
  const clock = new FakeClock();
  const seen: NodeEvent[] = [];
  const events = createEventLog({ clock, sink: (event) => void seen.push(event), open });
  const meter = overlayMeter({ clock, events });
  const reported = () => seen.map(({ state, level, details }) => [state, level, details["object"]]);
  return { clock, events, meter, reported };
}

function answer(refusals: Kinds, more: Partial<OverlayCounters> = {}, connectors = ["web"]): OverlayCounters {
  const counted = { flows: 9, activeFlows: 1, bytesIn: 5, bytesOut: 5, datagramsDropped: 0, errors: {} };
  const counters = connectors.map((connector) => ({ key: `tcp ${connector}`, connector, ...counted, refusals }));
  return {
    pid: 1,
    startedAt: 1,
    version: 1,
    draining: false,
    flowsDropped: 0,
    listeners: [],
    services: [],
    counters,
    ...more,
  };
}

test("a sample has metrics and facts, and one that the overlay does not answer has none", async () => {
  const { clock, meter } = setUp();
  expect(meter.facts()).toEqual({});
  expect(meter.sample(answer({}, { flowsDropped: 4 }))).toEqual({ "l4.flowsActive": 1, "l4.recordsDropped": 4 });
  await clock.advance(60_000);
  expect(meter.sample(answer({ loop: 3 }))).toMatchObject({ "l4.flowsActive": 1, "l4.refused": 3, "l4.rxBps": 0 });
  expect(meter.facts()).toMatchObject({ "connector.web.counters": { flows: 9, "refused.loop": 3 } });
  expect(meter.sample(undefined)).toEqual({});
  expect(meter.facts()).toEqual({});
  await clock.advance(120_000);
  expect(meter.sample(answer({ loop: 5 }))).toMatchObject({ "l4.refused": 1 });
});

test("reports a connector at its limit once, until five quiet minutes have passed", async () => {
  const { clock, meter, reported } = setUp();
  let refused = 5;
  const minute = async (more: number) => {
    refused += more;
    await clock.advance(60_000);
    meter.sample(answer({ "too-many-flows": refused }));
  };
  meter.sample(answer({ "too-many-flows": refused }));
  await minute(0);
  expect(reported()).toEqual([]);
  for (const more of [1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0]) await minute(more);
  expect(reported()).toEqual([["EXCEEDED", "WARNING", "connector web"]]);
  await minute(0);
  expect(reported().slice(1)).toEqual([["CLEARED", "INFO", "connector web"]]);
});

test("reports exhausted resources, unless the overlay restarted", async () => {
  const { clock, meter, reported } = setUp();
  meter.sample(answer({}));
  await clock.advance(60_000);
  meter.sample(answer({ "out-of-resources": 9 }, { pid: 2 }));
  expect(reported()).toEqual([]);
  await clock.advance(60_000);
  meter.sample(answer({ "out-of-resources": 10 }, { pid: 2 }));
  expect(reported()).toEqual([["EXCEEDED", "WARNING", "overlay resources"]]);
});

test("clears what an earlier run raised, and no foreign event", async () => {
  const opened = (object: string): OpenEvent => ({
    eventType: "Network Error",
    object,
    level: "WARNING",
    message: "",
    details: {},
    isAnnounced: true,
  });
  const { clock, events, meter } = setUp([opened("connector gone"), opened("eth0")]);
  meter.sample(answer({}));
  await clock.advance(300_000);
  meter.sample(answer({}));
  expect(events.openEvents().map(({ object }) => object)).toEqual(["eth0"]);
});

test("a thousand connectors at their limits leave room for other events", async () => {
  const { clock, events, meter } = setUp();
  const names = Array.from({ length: 1000 }, (_, i) => `c${i}`);
  meter.sample(answer({}, {}, names));
  await clock.advance(60_000);
  meter.sample(answer({ "too-many-flows": 1 }, {}, names));
  expect(events.openEvents()).toHaveLength(100);
});
