import { expect, test } from "vitest";
import { watchConditions, type Condition } from "../../../../../src/agent/telemetry/conditions/condition-watch.ts";
import { createEventLog, type OpenEvent } from "../../../../../src/agent/telemetry/events.ts";
import type { NodeEvent } from "../../../../../src/protocol/documents/telemetry.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";

const condition = (object: string): Condition => ({
  eventType: "Network Route Error",
  object,
  level: "ERROR",
  message: `${object} is gone`,
  over: `${object} is back`,
});

function stage(open: readonly OpenEvent[] = []) {
  const clock = new FakeClock();
  const sent: NodeEvent[] = [];
  const events = createEventLog({ clock, sink: (event) => sent.push(event), open });
  let current: readonly Condition[] = [];
  const watch = watchConditions({
    clock,
    events,
    read: () => current,
    adopt: (open) =>
      open.eventType === "Network Route Error" ? { ...open, over: `${open.object} is back` } : undefined,
  });
  return {
    clock,
    watch,
    messages: () => sent.map(({ level, state, message }) => `${level} ${state} ${message}`),
    see: (...objects: readonly string[]) => {
      current = objects.map(condition);
      watch.refresh();
    },
  };
}

test("reports the start and the end of a condition once each, after five seconds", async () => {
  const { clock, see, messages } = stage();
  await clock.advance(60_000);
  see("a");
  see("a", "b");
  await clock.advance(4999);
  expect(messages()).toEqual([]);
  await clock.advance(1);
  expect(messages()).toEqual(["ERROR EXCEEDED a is gone", "ERROR EXCEEDED b is gone"]);
  see("a", "b");
  await clock.advance(3_600_000);
  see("b");
  await clock.advance(5000);
  expect(messages().slice(2)).toEqual(["INFO CLEARED a is back"]);
  expect(clock.pendingTimers).toBe(0);
});

test("reports nothing that changes faster", async () => {
  const { clock, see, messages } = stage();
  await clock.advance(60_000);
  for (let count = 0; count < 10; count += 1) {
    see("a");
    await clock.advance(3000);
    see();
    await clock.advance(1000);
  }
  expect(messages()).toEqual([]);
  await clock.advance(10_000);
  expect(messages()).toEqual([]);
  expect(clock.pendingTimers).toBe(0);
});

test("reports nothing in the first minute, and then what is still true", async () => {
  const { clock, see, messages } = stage();
  see("a", "b");
  await clock.advance(30_000);
  see("a");
  await clock.advance(29_999);
  expect(messages()).toEqual([]);
  await clock.advance(1);
  expect(messages()).toEqual(["ERROR EXCEEDED a is gone"]);
});

test("after a restart clears what has ended, keeps what holds, and leaves foreign events alone", async () => {
  const open = (eventType: string, object: string): OpenEvent => ({
    eventType,
    object,
    level: "ERROR",
    message: `${object} is gone`,
    details: {},
    isAnnounced: true,
  });
  const { clock, see, messages } = stage([
    open("Network Route Error", "a"),
    open("Network Route Error", "b"),
    open("Network Error", "c"),
  ]);
  see("b");
  await clock.advance(120_000);
  expect(messages()).toEqual(["INFO CLEARED a is back"]);
});

test("keeps a condition open whose object is longer than its event shows", async () => {
  const { clock, see, watch, messages } = stage();
  const object = "a".repeat(300);
  await clock.advance(60_000);
  see(object);
  await clock.advance(5000);
  watch.refresh();
  await clock.advance(10_000);
  expect(messages()).toEqual([`ERROR EXCEEDED ${object} is gone`]);
  see();
  await clock.advance(5000);
  expect(messages().slice(1)).toEqual([`INFO CLEARED ${object} is back`]);
});

test("reports nothing once closed", async () => {
  const { clock, see, watch, messages } = stage();
  await clock.advance(60_000);
  see("a");
  watch.close();
  see("a", "b");
  await clock.advance(60_000);
  expect(messages()).toEqual([]);
  expect(clock.pendingTimers).toBe(0);
});
