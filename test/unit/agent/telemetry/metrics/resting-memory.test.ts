import { expect, test } from "vitest";
import { keepMemoryLow, ownUsage } from "../../../../../src/agent/telemetry/metrics/resting-memory.ts";
import { hostReader } from "../../../../../src/host/reader.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";

const MB = 1_000_000;

/** A process that has 20 MB to give back after its start, and then what a test lets it take. */
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

test("memory is given back after the start, however busy it was", async () => {
  const { clock, process, given } = rig();
  process.cpuMs = 9000;
  await clock.advance(9999);
  expect(given()).toBe(0);
  await clock.advance(1);
  expect(given()).toBe(1);
});

test("and again once a process that has grown rests", async () => {
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

test("what is in use is not collected again and again", async () => {
  const { clock, process, given } = rig();
  await clock.advance(10_000);
  process.privateBytes = process.least = 120 * MB;
  await clock.advance(60_000);
  expect(given()).toBe(2);
  await clock.advance(600_000);
  expect(given()).toBe(2);
});

test("nothing is looked at after the end", async () => {
  const { clock, end, given } = rig();
  end();
  await clock.advance(600_000);
  expect(given()).toBe(0);
});

test("usage is that of this process, and nothing where the kernel does not say", () => {
  const { privateBytes, cpuMs } = ownUsage(hostReader());
  expect(privateBytes).toBeGreaterThan(10 * MB);
  expect(cpuMs).toBeGreaterThan(0);
  expect(ownUsage({ read: () => undefined }).privateBytes).toBe(0);
});
