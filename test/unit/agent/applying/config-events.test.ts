import { expect, test } from "vitest";
import { ConfigEvents } from "../../../../src/agent/applying/config-events.ts";
import type { Standing } from "../../../../src/agent/reconcile/section-status.ts";
import { createEventLog } from "../../../../src/agent/telemetry/events.ts";
import { HostError } from "../../../../src/errors.ts";
import type { NodeEvent } from "../../../../src/protocol/documents/telemetry.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const MINUTE = 60_000;

function setUp() {
  const clock = new FakeClock();
  const sent: NodeEvent[] = [];
  const events = createEventLog({ clock, sink: (event) => void sent.push(event) });
  const configEvents = new ConfigEvents({ clock, events });
  return {
    clock,
    /** Returns the events for this status of a section. */
    see: (changes: Partial<Standing>, desired: Parameters<ConfigEvents["evaluate"]>[0] = {}): readonly NodeEvent[] => {
      sent.length = 0;
      configEvents.evaluate(desired, [
        {
          section: "core",
          outcome: { state: "converged" },
          issues: [],
          rejected: 0,
          notices: [],
          sinces: new Map(),
          reported: {},
          version: { node: 7 },
          steps: 0,
          since: 0,
          lastAttempt: 0,
          failures: 0,
          drift: { count: 0, what: [] },
          ...changes,
        },
      ]);
      return [...sent];
    },
  };
}

const drift = (count: number, ...what: string[]): Partial<Standing> => ({ drift: { count, lastAt: 1, what } });

test("reports the same drift once an hour with its count, other drift within five minutes", async () => {
  const { see, clock } = setUp();
  expect(see({})).toEqual([]);
  expect(see(drift(1, "set a"))).toMatchObject([
    { eventType: "Configuration Drift", level: "INFO", state: "UNKNOWN", details: { times: 1, object: "config.core" } },
  ]);
  for (let minute = 2; minute <= 60; minute += 1) {
    await clock.advance(MINUTE);
    expect(see(drift(minute, "set a"))).toEqual([]);
  }
  await clock.advance(MINUTE);
  expect(see(drift(61, "set a"))).toMatchObject([{ details: { times: 60, total: 61 } }]);
  expect(see(drift(62, "set b"))).toEqual([]);
  await clock.advance(5 * MINUTE);
  expect(see(drift(62, "set b"))).toMatchObject([{ details: { times: 1, what: ["set b"] } }]);
  expect(see(drift(62, "set b"))).toEqual([]);
});

test("reports a section that fails twice in a row once, and again when it is applied", () => {
  const { see } = setUp();
  const outcome = { state: "failed", error: new HostError("port-taken", "80 is taken") } as const;
  expect(see({ outcome, failures: 1 })).toEqual([]);
  expect(see({ outcome, failures: 2 })).toMatchObject([
    {
      eventType: "Configuration Update Failure",
      level: "INFO",
      state: "EXCEEDED",
      message: expect.stringContaining("80 is taken") as string,
      details: { object: "config.core", code: "port-taken", version: { node: 7 } },
    },
  ]);
  expect(see({ outcome, failures: 3 })).toEqual([]);
  expect(see({ outcome: { state: "rejected", issues: [] } })).toEqual([]);
  expect(see({})).toMatchObject([{ eventType: "Configuration Update Failure", state: "CLEARED" }]);
  expect(see({})).toEqual([]);
});

test("reports rejected items as invalid configuration until the last of them is corrected", () => {
  const { see } = setUp();
  const issues = Array.from({ length: 30 }, (_, index) => ({
    path: `core.${index}`,
    code: "E",
    message: "no".repeat(400),
  }));
  const [event] = see({ issues, rejected: 30 });
  expect(event).toMatchObject({ eventType: "Invalid Configuration", level: "ERROR", details: { rejected: 30 } });
  expect(JSON.stringify(event).length).toBeLessThan(8192);
  // A waiting or failed item is no fault of the configuration.
  expect(see({ issues, rejected: 0 })).toMatchObject([{ eventType: "Invalid Configuration", state: "CLEARED" }]);
});

test("a rollback event stays open until a newer version is applied", () => {
  const { see } = setUp();
  const body = { fqdn: "example.net", peers: [], grants: [], requires: [] };
  const domain = { version: 4, sub: "example.net", receivedAt: 1, passedOver: [], body };
  const refused = { version: 5, at: 2 };
  expect(see({}, { domain: { ...domain, refused } })).toMatchObject([
    { eventType: "Configuration Rollback", level: "WARNING", state: "EXCEEDED", details: { inForce: 4, refused: 5 } },
  ]);
  expect(see({}, { domain: { ...domain, refused } })).toEqual([]);
  expect(see({}, { domain: { ...domain, version: 6 } })).toMatchObject([{ state: "CLEARED" }]);
});
