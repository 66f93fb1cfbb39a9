import { expect, onTestFinished, test } from "vitest";
import { startForwardWatch } from "../../../../src/agent/network/forward-watch.ts";
import { HostError } from "../../../../src/errors.ts";
import type { ForwardDrop } from "../../../../src/host/network/firewall/forward-drops.ts";
import { FakeClock, settle } from "../../../support/fake-clock.ts";
import { fakeRuleset } from "../../../support/network/fake-ruleset.ts";

const DOCKER: ForwardDrop = { table: "ip filter", chain: "FORWARD", by: "policy drop" };
const MINUTE_MS = 60_000;

/** A watch over the test's chains; an error is thrown in their place. */
function rig() {
  const clock = new FakeClock();
  const machine: { chains: readonly ForwardDrop[] | Error } = { chains: [] };
  const signals: AbortSignal[] = [];
  const ruleset = fakeRuleset();
  let changes = 0;
  const watch = startForwardWatch({
    clock,
    watchRuleset: ruleset.watch,
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
  return { clock, machine, ruleset, signals, watch, polls: () => signals.length, changes: () => changes };
}

test("reads at once when forwarding is on, and then once a minute however often it is requested", async () => {
  const { clock, machine, watch, polls, changes } = rig();
  machine.chains = [DOCKER];
  expect(watch.drops(true)).toEqual([]);
  watch.drops(true);
  await clock.advance(0);
  expect([watch.drops(true), polls(), changes()]).toEqual([[DOCKER], 1, 1]);
  await clock.advance(MINUTE_MS - 1);
  watch.drops(true);
  expect(polls()).toBe(1);
  await clock.advance(1);
  expect([polls(), changes()]).toEqual([2, 1]);
});

test("reports a chain that disappears as well as one that appears", async () => {
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

test("reads soon after the rules change, and at most every ten seconds while they keep changing", async () => {
  const { clock, machine, ruleset, watch, polls, changes } = rig();
  watch.drops(true);
  await clock.advance(0);
  await clock.advance(30_000);
  expect(polls()).toBe(1);
  machine.chains = [DOCKER];
  ruleset.change();
  await clock.advance(500);
  expect([watch.drops(true), polls(), changes()]).toEqual([[DOCKER], 2, 1]);
  for (let second = 0; second < 30; second += 1) {
    ruleset.change();
    await clock.advance(1000);
  }
  expect(polls()).toBe(5);
  await clock.advance(10_000 + MINUTE_MS);
  expect(polls()).toBe(6);
});

test("reads again when the rules changed during the read", async () => {
  const clock = new FakeClock();
  const ruleset = fakeRuleset();
  const answers: ((drops: readonly ForwardDrop[]) => void)[] = [];
  const read = (): Promise<readonly ForwardDrop[]> => new Promise((resolve) => answers.push(resolve));
  const watch = startForwardWatch({ clock, watchRuleset: ruleset.watch, read, onChange: () => undefined });
  onTestFinished(() => watch.close());
  watch.drops(true);
  await clock.advance(0);
  ruleset.change();
  await clock.advance(30_000);
  expect(answers).toHaveLength(1);
  answers[0]?.([]);
  await settle();
  await clock.advance(10_000);
  expect(answers).toHaveLength(2);
});

test("keeps the last result of what cannot be read, and continues", async () => {
  const { clock, machine, watch, polls, changes } = rig();
  machine.chains = [DOCKER];
  watch.drops(true);
  await clock.advance(0);
  machine.chains = new HostError("exec-failed", "nft: busy");
  await clock.advance(MINUTE_MS);
  expect([watch.drops(true), polls(), changes()]).toEqual([[DOCKER], 2, 1]);
  machine.chains = [];
  await clock.advance(MINUTE_MS);
  expect([watch.drops(true), changes()]).toEqual([[], 2]);
});

test("reads nothing while nothing is forwarded, and forgets its findings", async () => {
  const { clock, machine, ruleset, watch, polls, changes } = rig();
  machine.chains = [DOCKER];
  expect(watch.drops(false)).toEqual([]);
  await clock.advance(10 * MINUTE_MS);
  expect(polls()).toBe(0);
  watch.drops(true);
  await clock.advance(0);
  expect(ruleset.isWatched()).toBe(true);
  expect(watch.drops(false)).toEqual([]);
  expect([ruleset.isWatched(), clock.pendingTimers]).toEqual([false, 0]);
  await clock.advance(10 * MINUTE_MS);
  expect(polls()).toBe(1);
  expect([watch.drops(true), changes()]).toEqual([[], 1]);
  await clock.advance(0);
  expect([watch.drops(true), changes()]).toEqual([[DOCKER], 2]);
});

test("stops its reads when closed, reports nothing more and leaves no timer", async () => {
  const clock = new FakeClock();
  const answers: ((drops: readonly ForwardDrop[]) => void)[] = [];
  const signals: AbortSignal[] = [];
  let changes = 0;
  const ruleset = fakeRuleset();
  const watch = startForwardWatch({
    clock,
    watchRuleset: ruleset.watch,
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
  expect([changes, signals.length, clock.pendingTimers, ruleset.isWatched()]).toEqual([0, 1, 0, false]);
});
