import { expect, test } from "vitest";
import { startTableWatch } from "../../../../src/agent/network/table-watch.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { fakeRuleset } from "../../../support/network/fake-ruleset.ts";

function rig() {
  const clock = new FakeClock();
  const ruleset = fakeRuleset();
  let changes = 0;
  const watch = startTableWatch({
    clock,
    watchRuleset: ruleset.watch,
    onChange: () => {
      changes += 1;
    },
  });
  return { clock, ruleset, watch, changes: () => changes };
}

test("reports a change after the read once it has settled, once", async () => {
  const { clock, ruleset, watch, changes } = rig();
  watch.reading(true);
  expect(ruleset.table()).toBe("holdfast");
  ruleset.change();
  ruleset.change();
  expect(changes()).toBe(0);
  await clock.advance(10_000);
  expect(changes()).toBe(1);
  watch.reading(true);
  await clock.advance(60_000);
  expect(changes()).toBe(1);
});

test("reports no change that a read has already covered", async () => {
  const { clock, ruleset, watch, changes } = rig();
  watch.reading(true);
  ruleset.change();
  watch.reading(true);
  await clock.advance(10_000);
  expect(changes()).toBe(0);
  ruleset.change();
  await clock.advance(10_000);
  expect(changes()).toBe(1);
});

test("does not listen if nothing is ours", async () => {
  const { clock, ruleset, watch, changes } = rig();
  watch.reading(false);
  expect(ruleset.isWatched()).toBe(false);
  watch.reading(true);
  expect(ruleset.isWatched()).toBe(true);
  ruleset.change();
  watch.reading(false);
  await clock.advance(10_000);
  expect([ruleset.isWatched(), changes()]).toEqual([false, 0]);
  watch.reading(true);
  watch.close();
  expect(ruleset.isWatched()).toBe(false);
});
