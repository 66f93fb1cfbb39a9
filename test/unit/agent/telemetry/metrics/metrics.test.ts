import { writeFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  createSampler,
  readMetrics,
  sampleBetween,
  startSampling,
} from "../../../../../src/agent/telemetry/metrics/metrics.ts";
import type { MetricReadings } from "../../../../../src/agent/telemetry/metrics/metrics.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import { hostReader } from "../../../../../src/host/reader.ts";
import { MetricSample } from "../../../../../src/protocol/documents/telemetry.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { machineRoot } from "../../../../support/machine/machine-root.ts";
import {
  MEMINFO,
  NET_DEV,
  PROCESS_IO,
  PROCESS_STAT,
  PROCESS_STATUS,
  SNMP,
  STAT,
} from "../../../../support/machine/proc-texts.ts";

const READINGS: MetricReadings = {
  elapsed: 0,
  cpu: { totalTicks: 10_000, idleTicks: 8000, cores: 2, bootedAt: undefined },
  memory: { totalBytes: 1000, availableBytes: 250 },
  disk: { totalBytes: 100, usedBytes: 30, freeBytes: 60 },
  load: 0.5,
  tcp: {
    activeOpens: 10,
    passiveOpens: 20,
    attemptFails: 1,
    establishedResets: 2,
    established: 7,
    retransmits: 3,
    resetsSent: 4,
  },
  halfOpen: 2,
  links: new Map([
    ["eth0", { index: "2", rxBytes: 1000, rxErrors: 0, rxDropped: 1, txBytes: 500, txErrors: 0, txDropped: 0 }],
  ]),
  heapUsedRatio: 0.25,
  processTicks: 100,
  processResidentBytes: 64_000_000,
  processIo: { readBytes: 0, writeBytes: 4096 },
};

const GAUGES = ["disk", "embflows", "heap", "load1", "proc.rss", "ram", "tcp.established"];

test("the first sample after a start has gauges only", () => {
  const sample = sampleBetween(undefined, READINGS);
  expect(Object.keys(sample).sort()).toEqual(GAUGES);
  expect(sample).toMatchObject({ ram: 75, disk: 33.333, heap: 25, load1: 0.5, embflows: 2, "tcp.established": 7 });
});

test("a minute of everything", () => {
  const sample = sampleBetween(READINGS, {
    ...READINGS,
    elapsed: 60_000,
    cpu: { totalTicks: 22_000, idleTicks: 17_000, cores: 2, bootedAt: undefined },
    tcp: {
      activeOpens: 13,
      passiveOpens: 20,
      attemptFails: 2,
      establishedResets: 4,
      established: 9,
      retransmits: 8,
      resetsSent: 10,
    },
    links: new Map([
      ["eth0", { index: "2", rxBytes: 751_000, rxErrors: 6, rxDropped: 1, txBytes: 7500, txErrors: 0, txDropped: 2 }],
    ]),
    processTicks: 220,
    processIo: { readBytes: 6000, writeBytes: 4096 },
  });
  expect(sample).toMatchObject({
    cpu: 25,
    "proc.cpu": 1,
    "proc.readBps": 100,
    "proc.writeBps": 0,
    "tcp.resets": 8,
    "tcp.retrans": 5,
    "tcp.activeOpens": 3,
    "tcp.passiveOpens": 0,
    "tcp.attemptFails": 1,
    "tcp.established": 9,
    "nic.eth0.rxBps": 100_000,
    "nic.eth0.txBps": 933.333,
    "nic.eth0.rxErr": 6,
    "nic.eth0.rxDrop": 0,
    "nic.eth0.txDrop": 2,
  });
});

test("a late sample is still a rate per minute", () => {
  const later = { ...READINGS, elapsed: 120_000, tcp: { ...(READINGS.tcp ?? fail()), retransmits: 23 } };
  expect(sampleBetween(READINGS, later)["tcp.retrans"]).toBe(10);
});

function fail(): never {
  throw new Error("the readings have no TCP counters");
}

describe("no delta", () => {
  const later = (fields: Partial<MetricReadings>): MetricReadings => ({ ...READINGS, elapsed: 60_000, ...fields });
  const linkNamed = (index: string, rxBytes: number) =>
    new Map([["eth0", { index, rxBytes, rxErrors: 0, rxDropped: 1, txBytes: 900, txErrors: 0, txDropped: 0 }]]);
  const ofLinks = (sample: object): string[] => Object.keys(sample).filter((name) => name.startsWith("nic."));

  test("for a counter that wrapped or was reset", () => {
    expect(ofLinks(sampleBetween(READINGS, later({ links: linkNamed("2", 10) })))).toEqual([]);
    expect(
      sampleBetween(READINGS, later({ cpu: { totalTicks: 5, idleTicks: 1, cores: 2, bootedAt: undefined } })),
    ).not.toHaveProperty("cpu");
    expect(sampleBetween(READINGS, later({ processTicks: 1 }))).not.toHaveProperty(["proc.cpu"]);
  });

  test("for a link created again under its old name, a new one, and a removed one", () => {
    expect(ofLinks(sampleBetween(READINGS, later({ links: linkNamed("3", 5000) })))).toEqual([]);
    expect(ofLinks(sampleBetween({ ...READINGS, links: new Map() }, later({})))).toEqual([]);
    expect(ofLinks(sampleBetween(READINGS, later({ links: new Map() })))).toEqual([]);
  });

  test("without time in between", () => {
    expect(Object.keys(sampleBetween(READINGS, READINGS)).sort()).toEqual(GAUGES);
  });
});

test("skips idle time that goes backwards, as some kernels report", () => {
  const odd = {
    ...READINGS,
    elapsed: 60_000,
    cpu: { totalTicks: 22_000, idleTicks: 7999, cores: 2, bootedAt: undefined },
  };
  expect(sampleBetween(READINGS, odd)).not.toHaveProperty("cpu");
});

test("a machine of files, twice", async () => {
  const { root, reader } = machineRoot({
    "/proc/stat": STAT,
    "/proc/meminfo": MEMINFO,
    "/proc/loadavg": "0.52 0.58 0.59 1/467 5648\n",
    "/proc/net/snmp": SNMP,
    "/proc/net/dev": NET_DEV,
    "/proc/self/stat": PROCESS_STAT,
    "/proc/self/status": PROCESS_STATUS,
    "/proc/self/io": PROCESS_IO,
  });
  const clock = new FakeClock();
  const sampler = createSampler({ reader, clock, countHalfOpen: async () => 3, extra: () => ({ "event.dropped": 4 }) });
  expect(await sampler.sample(60)).toMatchObject({
    t: 60,
    m: { ram: 75, embflows: 3, "event.dropped": 4, "proc.rss": 65_536_000 },
  });
  await clock.advance(60_000);
  // 800 ticks more, of which 600 idle and 40 waiting.
  writeFileSync(
    join(root, "proc/stat"),
    STAT.replace("cpu  100 10 50 800 40 5 15 20", "cpu  200 10 110 1400 80 5 15 20"),
  );
  const second = await sampler.sample(120);
  expect(second.m["cpu"]).toBe(20);
  expect(second.m["nic.ens192.100.rxBps"]).toBe(0);
  expect(second.m).not.toHaveProperty(["nic.lo.rxBps"]);
  expect(MetricSample.parse(second)).toEqual(second);
});

test("this machine, twice", async () => {
  const sources = { reader: hostReader(), clock: systemClock() };
  const first = await readMetrics(sources);
  const sample = sampleBetween(first, { ...(await readMetrics(sources)), elapsed: first.elapsed + 60_000 });
  expect(sample["ram"]).toBeGreaterThan(0);
  expect(sample["disk"]).toBeLessThanOrEqual(100);
  expect(sample["proc.rss"]).toBeGreaterThan(10_000_000);
  expect(sample["tcp.retrans"]).toBeGreaterThanOrEqual(0);
});

test("no metric is negative or NaN, for any counters", () => {
  const count = fc.oneof(fc.nat(), fc.constant(2 ** 32), fc.constant(2 ** 64));
  const readings = fc.record({
    elapsed: fc.nat(200_000),
    cpu: fc.record({ totalTicks: count, idleTicks: count, cores: fc.constant(2), bootedAt: fc.constant(undefined) }),
    processTicks: fc.option(count, { nil: undefined }),
    processIo: fc.record({ readBytes: count, writeBytes: count }),
  });
  fc.assert(
    fc.property(readings, readings, (before, after) => {
      for (const value of Object.values(sampleBetween({ ...READINGS, ...before }, { ...READINGS, ...after }))) {
        expect(value).toBeGreaterThanOrEqual(0);
        expect(Number.isFinite(value)).toBe(true);
      }
    }),
  );
});

describe("the schedule", () => {
  function sampling(clock: FakeClock) {
    const minutes: number[] = [];
    const sampler = { sample: async (minute: number) => ({ t: minute, m: {} }) };
    const stop = startSampling(
      clock,
      sampler,
      ({ t }) => minutes.push(t),
      () => {},
    );
    return { minutes, stop };
  }

  test("takes one sample at each full minute of the wall clock", async () => {
    const clock = new FakeClock(1_795_216_193_456);
    const { minutes, stop } = sampling(clock);
    await clock.advance(180_000);
    expect(minutes).toEqual([1_795_216_200, 1_795_216_260, 1_795_216_320]);
    stop();
    await clock.advance(180_000);
    expect(minutes.length).toBe(3);
    expect(clock.pendingTimers).toBe(0);
  });

  test("never two for one minute, also when the wall clock is set back slightly", async () => {
    const clock = new FakeClock(1_795_216_200_000);
    const { minutes, stop } = sampling(clock);
    await clock.advance(30_000);
    clock.setWall(1_795_216_200_000);
    await clock.advance(90_000);
    expect(minutes).toEqual([1_795_216_260]);
    stop();
  });

  test("reports a failing sample, and takes the next one", async () => {
    const clock = new FakeClock(0);
    const errors: unknown[] = [];
    const sampler = { sample: () => Promise.reject(new Error("no")) };
    const stop = startSampling(
      clock,
      sampler,
      () => {},
      (error) => errors.push(error),
    );
    await clock.advance(120_000);
    expect(errors.length).toBe(2);
    stop();
  });
});
