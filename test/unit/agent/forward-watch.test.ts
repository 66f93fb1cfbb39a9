import { expect, onTestFinished, test } from "vitest";
import { startForwardWatch } from "../../../src/agent/forward-watch.ts";
import { HostError } from "../../../src/errors.ts";
import type { ForwardDrop } from "../../../src/host/network/forward-drops.ts";
import { FakeClock, settle } from "../../support/fake-clock.ts";

const DOCKER: ForwardDrop = { table: "ip filter", chain: "FORWARD", by: "policy drop" };
const MINUTE_MS = 60_000;

/** A watch over chains that a test names; an error is thrown in their place. */
function rig() {
  const clock = new FakeClock();
  const machine: { chains: readonly ForwardDrop[] | Error } = { chains: [] };
  const signals: AbortSignal[] = [];
  let changes = 0;
  const watch = startForwardWatch({
    clock,
    read: (signal) => {
      signals.push(signal);
      const { chains } = machine;
      return chains instanceof Error ? Promise.reject(chains) : Promise.resolve(structuredClone(chains));
    },
    onChange: () => {
      changes += 1;
    },
  });
  onTestFinished(() => watch.close());
  return { clock, machine, signals, watch, looks: () => signals.length, changes: () => changes };
}

test("looks at once when something is forwarded, and then once a minute however often it is asked", async () => {
  const { clock, machine, watch, looks, changes } = rig();
  machine.chains = [DOCKER];
  expect(watch.drops(true)).toEqual([]);
  watch.drops(true);
  await clock.advance(0);
  expect([watch.drops(true), looks(), changes()]).toEqual([[DOCKER], 1, 1]);
  await clock.advance(MINUTE_MS - 1);
  watch.drops(true);
  expect(looks()).toBe(1);
  await clock.advance(1);
  expect([looks(), changes()]).toEqual([2, 1]);
});

test("tells of a chain that goes as of one that comes", async () => {
  const { clock, machine, watch, changes } = rig();
  watch.drops(true);
  await clock.advance(0);
  expect(changes()).toBe(0);
  machine.chains = [DOCKER];
  await clock.advance(MINUTE_MS);
  expect([watch.drops(true), changes()]).toEqual([[DOCKER], 1]);
  machine.chains = [];
  await clock.advance(MINUTE_MS);
  expect([watch.drops(true), changes()]).toEqual([[], 2]);
});

test("takes what cannot be read for what it was, and goes on looking", async () => {
  const { clock, machine, watch, looks, changes } = rig();
  machine.chains = [DOCKER];
  watch.drops(true);
  await clock.advance(0);
  machine.chains = new HostError("exec-failed", "nft: busy");
  await clock.advance(MINUTE_MS);
  expect([watch.drops(true), looks(), changes()]).toEqual([[DOCKER], 2, 1]);
  machine.chains = [];
  await clock.advance(MINUTE_MS);
  expect([watch.drops(true), changes()]).toEqual([[], 2]);
});

test("looks at nothing while nothing is forwarded, and forgets what it found", async () => {
  const { clock, machine, watch, looks, changes } = rig();
  machine.chains = [DOCKER];
  expect(watch.drops(false)).toEqual([]);
  await clock.advance(10 * MINUTE_MS);
  expect(looks()).toBe(0);
  watch.drops(true);
  await clock.advance(0);
  expect(watch.drops(false)).toEqual([]);
  await clock.advance(10 * MINUTE_MS);
  expect([looks(), clock.pendingTimers]).toEqual([2, 0]);
  expect([watch.drops(true), changes()]).toEqual([[], 1]);
  await clock.advance(0);
  expect([watch.drops(true), changes()]).toEqual([[DOCKER], 2]);
});

test("ends what it reads when it is closed, tells of nothing any more and leaves no timer", async () => {
  const clock = new FakeClock();
  const answers: ((drops: readonly ForwardDrop[]) => void)[] = [];
  const signals: AbortSignal[] = [];
  let changes = 0;
  const watch = startForwardWatch({
    clock,
    read: (signal) => {
      signals.push(signal);
      return new Promise((resolve) => answers.push(resolve));
    },
    onChange: () => {
      changes += 1;
    },
  });
  watch.drops(true);
  await clock.advance(0);
  expect(signals[0]?.aborted).toBe(false);
  watch.close();
  expect(signals[0]?.aborted).toBe(true);
  answers[0]?.([DOCKER]);
  await settle();
  watch.drops(true);
  expect([changes, signals.length, clock.pendingTimers]).toEqual([0, 1, 0]);
});
