import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  overlayFacts,
  overlayMetrics,
  type OverlayReading,
} from "../../../../../src/agent/telemetry/metrics/overlay-metrics.ts";
import { ListenerCounters } from "../../../../../src/protocol/overlay/overlay.ts";
import { SHADOW_MAX_BYTES, ShadowMap } from "../../../../../src/protocol/values/shadow.ts";
import { MetricSample } from "../../../../../src/protocol/documents/telemetry.ts";
import { validValues } from "../../../../support/arbitrary.ts";
import { runs } from "../../../../support/sample.ts";

function counters(connector: string, change: Partial<ListenerCounters> = {}): ListenerCounters {
  return {
    key: `tcp ${connector}`,
    connector,
    flows: 0,
    activeFlows: 0,
    bytesIn: 0,
    bytesOut: 0,
    datagramsDropped: 0,
    refusals: {},
    errors: {},
    ...change,
  };
}

const reading = (elapsed: number, ...all: ListenerCounters[]): OverlayReading => ({
  elapsed,
  pid: 7,
  startedAt: 1000,
  counters: all,
});

describe("the metrics of a minute", () => {
  const before = reading(
    0,
    counters("web", { flows: 10, bytesIn: 1000, bytesOut: 5000, refusals: { "too-many-flows": 1 } }),
    counters("dns", { flows: 5, bytesIn: 50, bytesOut: 50 }),
  );
  const after = reading(
    60_000,
    counters("web", {
      flows: 16,
      activeFlows: 2,
      bytesIn: 1600,
      bytesOut: 65_000,
      refusals: { "too-many-flows": 2, "source-not-permitted": 3 },
      errors: { reset: 1 },
    }),
    counters("dns", { flows: 5, bytesIn: 50, bytesOut: 50 }),
  );

  test("are rates of all connectors and of each busy one", () => {
    expect(overlayMetrics(before, after)).toEqual({
      "l4.rxBps": 80,
      "l4.txBps": 8000,
      "l4.flowsNew": 6,
      "l4.flowsActive": 2,
      "l4.refused": 4,
      "l4.errors": 1,
      "l4.dropped": 0,
      "connector.web.rxBps": 80,
      "connector.web.txBps": 8000,
      "connector.web.flowsNew": 6,
      "connector.web.flowsActive": 2,
      "connector.web.refused": 4,
      "connector.web.errors": 1,
      "connector.web.dropped": 0,
    });
  });

  test("are gauges only at first, and after a restart of the overlay", () => {
    expect(overlayMetrics(undefined, after)).toEqual({ "l4.flowsActive": 2 });
    expect(overlayMetrics(before, { ...after, pid: 8 })).toEqual({ "l4.flowsActive": 2 });
    expect(overlayMetrics(before, { ...after, startedAt: 2000 })).toEqual({ "l4.flowsActive": 2 });
    expect(overlayMetrics(after, after)).toEqual({ "l4.flowsActive": 2 });
  });

  test("count a new listener from 0, and add up a connector's listeners", () => {
    const second = counters("web", { key: "tcp other", flows: 4, bytesIn: 600, activeFlows: 1 });
    const back = counters("dns", { flows: 1, bytesIn: 60 });
    const metrics = overlayMetrics(before, reading(60_000, ...after.counters.slice(0, 1), second, back));
    expect(metrics).toMatchObject({
      "connector.web.flowsNew": 10,
      "connector.web.rxBps": 160,
      "connector.web.flowsActive": 3,
      "connector.dns.flowsNew": 1,
      "connector.dns.rxBps": 8,
    });
  });

  test("name the busiest of a thousand connectors, so that the sample fits", () => {
    const many = (scale: number) =>
      Array.from({ length: 1000 }, (_, i) => counters(`connector ${"x".repeat(60)} ${i}`, { bytesIn: i * scale }));
    const metrics = overlayMetrics(reading(0, ...many(1)), reading(60_000, ...many(3)));
    const names = Object.keys(metrics).filter((name) => name.endsWith("rxBps"));
    expect(names).toContain(`connector.connector ${"x".repeat(60)} 999.rxBps`);
    expect(names.length).toBeGreaterThan(5);
    expect(names.length).toBeLessThan(34);
    expect(metrics["l4.rxBps"]).toBe(133_200);
    expect(JSON.stringify(metrics).length).toBeLessThan(10_000);
  });

  test("fit a sample and a shadow for any report of the overlay", () => {
    const readings = fc.array(validValues(ListenerCounters), { maxLength: 8 });
    fc.assert(
      fc.property(readings, readings, (first, second) => {
        const [a, b] = [first, second].map((all) => all.map((one) => ListenerCounters.parse(one)));
        const current = reading(60_000, ...(b ?? []));
        const m = overlayMetrics(reading(0, ...(a ?? [])), current);
        expect(MetricSample.safeParse({ t: 60, m }).success).toBe(true);
        expect(Object.values(m).every((value) => value >= 0)).toBe(true);
        expect(ShadowMap.safeParse(overlayFacts(current)).success).toBe(true);
      }),
      { numRuns: runs(300) },
    );
  });
});

describe("the facts of connectors", () => {
  test("are the values other than 0, of those that had or refused a flow", () => {
    const web = counters("web", { flows: 3, activeFlows: 1, bytesIn: 10, bytesOut: 20, refusals: { loop: 2 } });
    const refusing = counters("shut", { refusals: { loop: 1 } });
    const udp = counters("web", { key: "udp web", flows: 1, datagramsDropped: 4, errors: { reset: 1 } });
    expect(overlayFacts(reading(0, web, udp, counters("idle"), refusing))).toEqual({
      "connector.shut.counters": { flows: 0, "refused.loop": 1 },
      "connector.web.counters": {
        flows: 4,
        active: 1,
        bytesIn: 10,
        bytesOut: 20,
        dropped: 4,
        "refused.loop": 2,
        "error.reset": 1,
      },
    });
  });

  test("stay within their share for a thousand, with problems first and the rest summed up", () => {
    const many = Array.from({ length: 1000 }, (_, i) =>
      counters(`c${i}`, { flows: 1, bytesIn: 1000 + i, ...(i === 0 ? { errors: { reset: 1 } } : {}) }),
    );
    const facts = overlayFacts(reading(0, ...many, counters("y".repeat(200), { flows: 7 })));
    expect(Object.keys(facts).slice(0, 2)).toEqual(["connector.c0.counters", "connector.c999.counters"]);
    const named = Object.keys(facts).length - 1;
    expect(named).toBeGreaterThan(100);
    expect(facts["connectors.others"]).toMatchObject({ connectors: 1001 - named, flows: 1007 - named });
    expect(JSON.stringify(facts).length).toBeLessThan(SHADOW_MAX_BYTES / 3);
    expect(ShadowMap.safeParse(facts).success).toBe(true);
  });
});
