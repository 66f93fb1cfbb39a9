import { pino } from "pino";
import { expect, test } from "vitest";
import { startWatchdog } from "../../../../src/host/process/watchdog.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

function rig(check: () => string | undefined) {
  const clock = new FakeClock();
  const lines: { readonly msg: string; readonly reason?: string }[] = [];
  const log = pino({ base: null }, { write: (line: string) => void lines.push(JSON.parse(line) as (typeof lines)[0]) });
  const fed: number[] = [];
  const end = startWatchdog({ clock, log, limitMs: 60_000, check, feed: () => void fed.push(clock.elapsed()) });
  return { clock, lines, fed, end };
}

test("notifies at once and twice in the allowed time", async () => {
  const { clock, fed, end } = rig(() => undefined);
  await clock.advance(90_000);
  expect(fed).toEqual([0, 30_000, 60_000, 90_000]);
  end();
  await clock.advance(90_000);
  expect(fed).toHaveLength(4);
  expect(clock.pendingTimers).toBe(0);
});

test("does not notify while a check hangs, reports it once, and continues when it recovers", async () => {
  let stuck: string | undefined;
  const { clock, lines, fed } = rig(() => stuck);
  stuck = "the session is 40 s overdue";
  await clock.advance(40_000);
  expect(fed).toEqual([0]);
  expect(lines).toMatchObject([{ msg: "watchdog keep-alive withheld: a component does not respond", reason: stuck }]);
  stuck = undefined;
  await clock.advance(5000);
  // Late, but within the time limit.
  expect(fed).toEqual([0, 45_000]);
  expect(lines).toMatchObject([{}, { msg: "the stuck component responds again" }]);
});

test("counts a check that throws as one without an answer", async () => {
  const { clock, lines, fed } = rig(() => {
    throw new Error("disk I/O error");
  });
  await clock.advance(300_000);
  expect(fed).toEqual([]);
  expect(lines).toMatchObject([{ reason: "disk I/O error" }]);
});
