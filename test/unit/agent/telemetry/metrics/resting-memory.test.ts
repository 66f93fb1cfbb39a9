import { expect, test } from "vitest";
import { keepMemoryLow, ownUsage } from "../../../../../src/agent/telemetry/metrics/resting-memory.ts";
import { hostReader } from "../../../../../src/host/reader.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";

const MB = 1_000_000;

/** A process that has 20 MB to release after its start, and then the memory that a test sets. */
function rig() {
  const clock = new FakeClock();
  const process = { privateBytes: 100 * MB, cpuMs: 0, least: 80 * MB };
  let given = 0;
  const end = keepMemoryLow({
    clock,
    usage: () => ({ ...process }),
    giveBack() {
      given += 1;
      process.privateBytes = process.least;
    },
  });
  return { clock, process, end, given: () => given };
}

test("returns memory after the start, however busy", async () => {
  const { clock, process, given } = rig();
  process.cpuMs = 9000;
  await clock.advance(9999);
  expect(given()).toBe(0);
  await clock.advance(1);
  expect(given()).toBe(1);
});

test("and again when a process that has grown is idle", async () => {
  const { clock, process, given } = rig();
  await clock.advance(10_000);
  process.privateBytes += 2 * MB - 1;
  await clock.advance(60_000);
  expect(given(), "it has hardly grown").toBe(1);
  process.privateBytes = 120 * MB;
  process.cpuMs += 1200;
  await clock.advance(60_000);
  expect(given(), "it works").toBe(1);
  process.cpuMs += 1199;
  await clock.advance(60_000);
  expect(given()).toBe(2);
});

test("does not collect memory that is in use repeatedly", async () => {
  const { clock, process, given } = rig();
  await clock.advance(10_000);
  process.privateBytes = process.least = 120 * MB;
  await clock.advance(60_000);
  expect(given()).toBe(2);
  await clock.advance(600_000);
  expect(given()).toBe(2);
});

test("reads nothing after the end", async () => {
  const { clock, end, given } = rig();
  end();
  await clock.advance(600_000);
  expect(given()).toBe(0);
});

test("usage is that of this process, and absent if the kernel does not report it", () => {
  const { privateBytes, cpuMs } = ownUsage(hostReader());
  expect(privateBytes).toBeGreaterThan(10 * MB);
  expect(cpuMs).toBeGreaterThan(0);
  expect(ownUsage({ read: () => undefined }).privateBytes).toBe(0);
});
