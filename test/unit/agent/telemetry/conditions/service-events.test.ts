import { expect, test } from "vitest";
import { createEventLog, type OpenEvent } from "../../../../../src/agent/telemetry/events.ts";
import { serviceEvents } from "../../../../../src/agent/telemetry/conditions/service-events.ts";
import type { ServiceHealth } from "../../../../../src/protocol/overlay/overlay.ts";
import type { NodeEvent } from "../../../../../src/protocol/documents/telemetry.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";

function setUp(open: readonly OpenEvent[] = []) {
  const seen: NodeEvent[] = [];
  const events = createEventLog({ clock: new FakeClock(), sink: (event) => void seen.push(event), open });
  const reported = (): unknown => seen.splice(0).map(({ state, level, details }) => [state, level, details["object"]]);
  return { watch: serviceEvents(events), events, reported };
}

const is = (name: string, state: ServiceHealth["state"]): ServiceHealth => ({ name, state, since: 1 });

test("reports a withdrawn service once, and again when it is back", () => {
  const { watch, reported } = setUp();
  watch.refresh([is("web", "unknown"), is("db", "up")]);
  expect(reported()).toEqual([]);
  watch.refresh([is("web", "down")]);
  watch.lookAtAll([is("web", "down"), is("db", "up")]);
  expect(reported()).toEqual([["EXCEEDED", "WARNING", "service web"]]);
  watch.refresh([is("web", "unknown")]);
  watch.refresh([is("db", "up")]);
  expect(reported()).toEqual([]);
  watch.refresh([is("web", "up")]);
  watch.refresh([is("web", "up")]);
  expect(reported()).toEqual([["CLEARED", "INFO", "service web"]]);
  watch.refresh([is("web", "down")]);
  expect(reported()).toEqual([["EXCEEDED", "WARNING", "service web"]]);
});

test("clears the events of an earlier run with the service, and no foreign event", () => {
  const earlier = {
    eventType: "Network Error",
    level: "WARNING",
    message: "",
    details: {},
    isAnnounced: true,
  } as const;
  const { watch, events, reported } = setUp([
    { ...earlier, object: "service old" },
    { ...earlier, object: "eth0" },
  ]);
  watch.refresh([]);
  expect(reported()).toEqual([]);
  watch.lookAtAll([is("new", "up")]);
  expect(reported()).toEqual([["CLEARED", "INFO", "service old"]]);
  expect(events.isOpen("Network Error", "eth0")).toBe(true);
});

test("limits the number of open events", () => {
  const { watch, events } = setUp();
  watch.refresh(Array.from({ length: 150 }, (_, i) => is(`s${i}`, "down")));
  expect(events.openEvents().length).toBe(100);
  watch.refresh([is("s0", "up"), is("s149", "down")]);
  expect([events.isOpen("Network Error", "service s0"), events.isOpen("Network Error", "service s149")]).toEqual([
    false,
    true,
  ]);
});
