import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  clearEvent,
  createEventLog,
  initialEvents,
  nextWindow,
  noticeEvent,
  OpenEvents,
  raiseEvent,
  RATE_CAP,
} from "../../../../src/agent/telemetry/events.ts";
import type { EventInput, OpenEvent } from "../../../../src/agent/telemetry/events.ts";
import { NodeEvent } from "../../../../src/protocol/documents/telemetry.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const down = (object: string): EventInput => ({
  eventType: "Network Health Check",
  object,
  level: "ERROR",
  message: `Interface ${object} is down`,
});
const up = (object: string) => ({ eventType: "Network Health Check", object, message: "All interfaces are up" });

function log(open: readonly OpenEvent[] = [], clock = new FakeClock(1_795_216_193_900)) {
  const events: NodeEvent[] = [];
  const kept: (readonly OpenEvent[])[] = [];
  const eventLog = createEventLog({
    clock,
    sink: (event) => events.push(event),
    open,
    onOpenChanged: (changed) => kept.push(changed),
  });
  return { clock, events, kept, eventLog };
}

test("a condition gives one event at its start and one at its end", () => {
  const { eventLog, events } = log();
  eventLog.raise({ ...down("eth0"), details: { carrier: false } });
  eventLog.raise(down("eth0"));
  expect(eventLog.isOpen("Network Health Check", "eth0")).toBe(true);
  eventLog.clear({ ...up("eth0"), details: { carrier: true } });
  eventLog.clear(up("eth0"));
  expect(events).toMatchObject([
    { level: "ERROR", state: "EXCEEDED", timestamp: 1_795_216_193, details: { object: "eth0", carrier: false } },
    { level: "INFO", state: "CLEARED", message: "All interfaces are up", details: { object: "eth0", carrier: true } },
  ]);
  for (const event of events) expect(NodeEvent.parse(event)).toEqual(event);
});

test("each event has an identifier of its own, in order of time (RFC 9562, version 7)", () => {
  const { eventLog, events } = log();
  for (let count = 0; count < 5; count += 1) eventLog.notice(down("eth0"));
  const ids = events.map(({ details }) => String(details["nodeEventId"]));
  expect(new Set(ids).size).toBe(5);
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

test("an event without an end has no state, and a clear may have a level of its own", () => {
  const { eventLog, events } = log();
  eventLog.notice({
    eventType: "Node Device Reboot",
    object: "machine",
    level: "INFO",
    message: "Node device was rebooted",
  });
  eventLog.raise({ ...down("x"), eventType: "All Peers Disconnected", level: "WARNING" });
  eventLog.clear({ ...up("x"), eventType: "All Peers Disconnected", level: "WARNING" });
  expect(events.map(({ state, level }) => [state, level])).toEqual([
    ["UNKNOWN", "INFO"],
    ["EXCEEDED", "WARNING"],
    ["CLEARED", "WARNING"],
  ]);
});

test("a restart clears what was raised before it", () => {
  const before = log();
  before.eventLog.raise(down("eth0"));
  const stored = OpenEvents.parse(JSON.parse(JSON.stringify(before.kept.at(-1))));
  const after = log(stored);
  after.eventLog.raise(down("eth0"));
  expect(after.events).toEqual([]);
  after.eventLog.clear(up("eth0"));
  expect(after.events).toMatchObject([{ state: "CLEARED" }]);
  expect(after.kept.at(-1)).toEqual([]);
});

describe("more than sixty a minute", () => {
  test("the rest become one event, and no timer remains", async () => {
    const { eventLog, events, clock } = log();
    for (let count = 0; count < RATE_CAP + 25; count += 1) eventLog.notice(down(`eth${count}`));
    expect(events.length).toBe(RATE_CAP);
    await clock.advance(60_000);
    expect(events.length).toBe(RATE_CAP + 1);
    expect(events.at(-1)).toMatchObject({
      state: "UNKNOWN",
      details: { suppressed: 25, types: { "Network Health Check": 25 } },
    });
    expect(clock.pendingTimers).toBe(0);
  });

  test("announces delayed conditions that still hold, and never the others", async () => {
    const { eventLog, events, clock } = log();
    for (let count = 0; count < RATE_CAP; count += 1) eventLog.notice(down("noise"));
    eventLog.raise(down("short"));
    eventLog.raise(down("lasting"));
    eventLog.clear(up("short"));
    await clock.advance(60_000);
    expect(events.slice(RATE_CAP).map(({ details }) => details["object"])).toEqual([undefined, "lasting"]);
    eventLog.clear(up("lasting"));
    expect(events.at(-1)).toMatchObject({ state: "CLEARED", details: { object: "lasting" } });
  });

  test("announces more than a minute's worth of lasting conditions minute by minute", async () => {
    const { eventLog, events, clock } = log();
    for (let count = 0; count < 200; count += 1) eventLog.raise(down(`eth${count}`));
    await clock.advance(60_000);
    expect(events.length).toBe(2 * RATE_CAP);
    await clock.advance(180_000);
    expect(events.filter(({ state }) => state === "EXCEEDED").length).toBe(200);
    expect(clock.pendingTimers).toBe(0);
  });

  test("reports an end even beyond the limit, since an alert would stay open", () => {
    const { eventLog, events } = log();
    eventLog.raise(down("eth0"));
    for (let count = 0; count < 200; count += 1) eventLog.notice(down("noise"));
    eventLog.clear(up("eth0"));
    expect(events.at(-1)).toMatchObject({ state: "CLEARED" });
  });
});

test("bounds the set of open conditions, and cuts long texts", () => {
  let state = initialEvents([], 0);
  for (let count = 0; count < 1500; count += 1) [state] = raiseEvent(state, down(`eth${count}`), count * 100);
  expect(state.open.size).toBe(1000);
  const long = {
    eventType: "t".repeat(100),
    object: "o".repeat(500),
    level: "INFO",
    message: "m".repeat(5000),
  } as const;
  const [opened, [draft]] = raiseEvent(initialEvents([], 0), long, 0);
  expect(draft?.message.length).toBe(1024);
  expect(OpenEvents.safeParse([...opened.open.values()]).success).toBe(true);
  expect(clearEvent(opened, long, 1)[1].length).toBe(1);
});

const move = fc.record({
  kind: fc.constantFrom("raise", "clear", "notice", "wait"),
  object: fc.constantFrom("a", "b", "c"),
  ms: fc.nat(20_000),
  times: fc.integer({ min: 1, max: 40 }),
});

test("each object alternates between raise and clear; few a minute", () => {
  fc.assert(
    fc.property(fc.array(move, { maxLength: 60 }), (moves) => {
      let state = initialEvents([], 0);
      let now = 0;
      const announced = new Set<string>();
      const times: number[] = [];
      for (const { kind, object, ms, times: repeats } of moves) {
        now += kind === "wait" ? ms : 1;
        for (let count = 0; count < (kind === "notice" ? repeats : 1); count += 1) {
          const step = {
            raise: () => raiseEvent(state, down(object), now),
            clear: () => clearEvent(state, up(object), now),
            notice: () => noticeEvent(state, down(object), now),
            wait: () => nextWindow(state, now),
          }[kind];
          const [next, drafts] = step();
          state = next;
          for (const draft of drafts) {
            const about = String(draft.details["object"]);
            if (draft.state === "EXCEEDED") {
              expect(announced.has(about)).toBe(false);
              announced.add(about);
            } else if (draft.state === "CLEARED") {
              expect(announced.delete(about)).toBe(true);
            }
            if (draft.state !== "CLEARED") times.push(now);
          }
        }
      }
      for (const [, event] of state.open) expect(announced.has(event.object)).toBe(event.isAnnounced);
      // A window may start at any time, so a minute touches at most two of them.
      for (const time of times) {
        expect(times.filter((other) => other >= time && other < time + 60_000).length).toBeLessThanOrEqual(
          2 * RATE_CAP,
        );
      }
    }),
  );
});
