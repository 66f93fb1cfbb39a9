import fc from "fast-check";
import { expect, onTestFinished, test, vi } from "vitest";
import { rateTimetable, timetable } from "../../../../../src/agent/containers/supervision/schedule.ts";

const at = (text: string): number => Date.parse(`${text}Z`);

test.each([
  ["*/15 * * * *", "2026-03-01T10:07:30", "2026-03-01T10:15:00"],
  ["*/15 * * * *", "2026-03-01T10:15:00", "2026-03-01T10:30:00"],
  ["0 3 * * *", "2026-12-31T03:00:00", "2027-01-01T03:00:00"],
  ["30 2 29 2 *", "2026-01-01T00:00:00", "2028-02-29T02:30:00"],
  ["0 0 * * 7", "2026-03-02T00:00:00", "2026-03-08T00:00:00"],
  ["0 0 * * sun", "2026-03-02T00:00:00", "2026-03-08T00:00:00"],
  // One of the two days is enough if both are set.
  ["0 0 13 * 5", "2026-03-02T00:00:00", "2026-03-06T00:00:00"],
  ["0 0 13 * 5", "2026-04-11T00:00:00", "2026-04-13T00:00:00"],
  ["0 0 */2 * 1", "2026-03-02T00:00:00", "2026-03-09T00:00:00"],
  ["0 0 ? * 5", "2026-03-02T00:00:00", "2026-03-06T00:00:00"],
  ["0 0 13 * ?", "2026-03-02T00:00:00", "2026-03-13T00:00:00"],
  ["0 12 * * *", "2026-03-01T11:59:59.999", "2026-03-01T12:00:00"],
])("%s after %s is %s", (text, after, expected) => {
  expect(timetable({ kind: "cron", text }).next(at(after))).toBe(at(expected));
});

test("times are UTC, also on a machine whose summer time starts that night", () => {
  vi.stubEnv("TZ", "Europe/Berlin");
  onTestFinished(() => void vi.unstubAllEnvs());
  expect(new Date(at("2026-03-29T02:30:00")).getHours()).toBe(4);
  const nightly = timetable({ kind: "cron", text: "30 2 * * *" });
  expect(nightly.next(at("2026-03-28T12:00:00"))).toBe(at("2026-03-29T02:30:00"));
});

test("does not make up for missed runs of a cron", () => {
  const daily = timetable({ kind: "cron", text: "0 3 * * *" });
  expect(daily.resume(at("2026-03-01T03:00:00"), at("2026-03-05T12:00:00"))).toBe(at("2026-03-06T03:00:00"));
});

test("a rate begins one interval from the start, stays in step, and makes up for nothing", () => {
  const hourly = rateTimetable(3_600_000);
  expect(hourly.next(1000)).toBe(3_601_000);
  expect(hourly.resume(5000, 4000)).toBe(5000);
  fc.assert(
    fc.property(fc.integer({ min: 1000, max: 1e9 }), fc.nat(1e12), fc.nat(1e12), (everyMs, planned, now) => {
      const next = rateTimetable(everyMs).resume(planned, now) ?? 0;
      expect(next).toBeGreaterThan(now);
      expect(next).toBeLessThanOrEqual(now + everyMs);
      if (planned <= now) expect((next - planned) % everyMs).toBe(0);
    }),
  );
});
