import { expect, test } from "vitest";
import { AggregatedLog } from "../../../src/host/aggregated-log.ts";
import { FakeClock } from "../../support/fake-clock.ts";

function stage() {
  const clock = new FakeClock();
  const lines: object[] = [];
  const warn = (fields: object, msg: string): void => void lines.push({ ...fields, msg });
  const error = (fields: object, msg: string): void => void lines.push({ ...fields, msg, level: "error" });
  const log = new AggregatedLog({ warn, error }, clock);
  return { clock, lines, log };
}

test("logs the first line of a kind at once, the others of a minute as a count at its end", async () => {
  const { clock, lines, log } = stage();
  for (let i = 0; i < 200_000; i += 1) log.warn("bad", { i }, "refused");
  log.warn("worse", {}, "refused altogether");
  expect(lines).toEqual([{ i: 0, msg: "refused" }, { msg: "refused altogether" }]);
  await clock.advance(60_000);
  expect(lines.slice(2)).toEqual([{ kind: "bad", repeated: 199_999, seconds: 60, msg: "refused" }]);
  log.warn("bad", { i: 1 }, "refused");
  expect(lines.slice(3)).toEqual([{ i: 1, msg: "refused" }]);
});

test("logs failures as errors, their count too", async () => {
  const { clock, lines, log } = stage();
  for (let i = 0; i < 3; i += 1) log.error("disk", { i }, "not stored");
  await clock.advance(60_000);
  expect(lines).toEqual([
    { i: 0, msg: "not stored", level: "error" },
    { kind: "disk", repeated: 2, seconds: 60, msg: "not stored", level: "error" },
  ]);
});

test("each kind has its own minute, and no timer remains once all are over", async () => {
  const { clock, lines, log } = stage();
  log.warn("a", {}, "a");
  await clock.advance(30_000);
  log.warn("b", {}, "b");
  log.warn("b", {}, "b");
  await clock.advance(30_000);
  log.warn("a", {}, "a");
  expect(lines).toEqual([{ msg: "a" }, { msg: "b" }, { msg: "a" }]);
  await clock.advance(60_000);
  expect(lines.slice(3)).toEqual([{ kind: "b", repeated: 1, seconds: 60, msg: "b" }]);
  expect(clock.pendingTimers).toBe(0);
});

test("logs an unlimited number of kinds as one", async () => {
  const { clock, lines, log } = stage();
  for (let i = 0; i < 10_000; i += 1) log.warn(`kind ${i}`, {}, "refused");
  expect(lines).toHaveLength(257);
  await clock.advance(60_000);
  expect(lines.slice(257)).toEqual([{ kind: "other", repeated: 9743, seconds: 60, msg: "refused" }]);
});
