import { expect, test } from "vitest";
import { lossText, NO_LOSSES, repeatedLoss, withLoss, type Losses } from "../../../../src/agent/session/losses.ts";

const MINUTE = 60_000;
const lostAt = (...times: readonly number[]): Losses =>
  times.reduce((losses, at) => withLoss(losses, at, `cause of ${at}`), NO_LOSSES);

test("reports four losses within ten minutes with the last cause, until they are over", () => {
  expect(repeatedLoss(lostAt(0, MINUTE, 2 * MINUTE), 2 * MINUTE)).toBeUndefined();
  const losses = lostAt(0, MINUTE, 2 * MINUTE, 9 * MINUTE);
  const repeated = repeatedLoss(losses, 9 * MINUTE);
  expect(repeated).toEqual({ count: 4, since: 0, cause: "cause of 540000" });
  expect(repeated && lossText(repeated)).toBe("lost 4 times in the last ten minutes; the last cause: cause of 540000");
  expect(repeatedLoss(losses, 10 * MINUTE - 1)?.count).toBe(4);
  expect(repeatedLoss(losses, 10 * MINUTE)).toBeUndefined();
});

test("does not add up losses that are further apart", () => {
  const times = Array.from({ length: 20 }, (_, i) => i * 4 * MINUTE);
  expect(repeatedLoss(lostAt(...times), 76 * MINUTE)).toBeUndefined();
  expect(lostAt(...times).times).toHaveLength(3);
});

test("keeps a bounded number of losses", () => {
  const times = Array.from({ length: 1000 }, (_, i) => i);
  const losses = withLoss(lostAt(...times), 1000, "x".repeat(10_000));
  expect(losses.times).toHaveLength(600);
  expect(losses.cause).toHaveLength(512);
});
