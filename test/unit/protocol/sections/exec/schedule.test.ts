import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { nextCronTime, readSchedule } from "../../../../../src/protocol/sections/exec/schedule.ts";

describe("readSchedule", () => {
  it.each([
    ["rate(30 minutes)", 1800],
    ["rate(1 minute)", 60],
    ["rate(1 hour)", 3600],
    [" Rate( 2   HOURS ) ", 7200],
    ["rate(1 day)", 86_400],
    ["rate(366 days)", 366 * 86_400],
  ])("reads %j", (text, everySeconds) => {
    expect(readSchedule(text)).toMatchObject({ kind: "rate", everySeconds });
  });

  it.each([
    ["*/5 * * * *", "*/5 * * * *"],
    ["0  9 * * MON-FRI", "0 9 * * mon-fri"],
    ["0 0 1,15 * *", "0 0 1,15 * *"],
    ["0 0 * jan sun", "0 0 * jan sun"],
    ["cron(15 3 * * *)", "15 3 * * *"],
    ["0 0 ? * FRI", "0 0 ? * fri"],
  ])("reads %j", (text, cron) => {
    expect(readSchedule(text)).toEqual({ kind: "cron", text: cron });
  });

  it.each([
    "",
    "rate(0 minutes)",
    "rate(367 days)",
    "rate(5 seconds)",
    "rate(-1 hour)",
    "rate(1.5 hours)",
    "rate()",
    "* * * *",
    "0 * * * * *",
    "cron(0 12 * * ? *)",
    "60 * * * *",
    "0 24 * * *",
    "0 0 31 2 *",
    "0 0 30 feb *",
    "0 0 L * *",
    "0 0 1w * *",
    "0 0 * * 5#2",
    "0 0 * * +5",
    "0 22-6 * * *",
    "0 0 * * monday",
    "*/61 * * * *",
    "2026-03-01T10:00:00",
    "a b c d e",
    "@daily",
    "*/0 * * * *",
    "0-4294967295 * * * *",
    `${"1,".repeat(100)}1 * * * *`,
    "1".repeat(100_000),
  ])("refuses %j", (text) => {
    expect(readSchedule(text)).toBeUndefined();
  });

  it("handles any input quickly", () => {
    const field = fc.array(fc.constantFrom("*", "/", "-", ",", "9", "59", "mon", "?", "L", "#"), { maxLength: 12 });
    fc.assert(
      fc.property(fc.array(field, { minLength: 4, maxLength: 6 }), (fields) => {
        const read = readSchedule(fields.map((parts) => parts.join("")).join(" "));
        if (read !== undefined) expect(readSchedule(read.text)).toEqual(read);
      }),
    );
  });
});

describe("nextCronTime", () => {
  it.each(["sun-sun", "SUN-SUN/2", "0-0", "7-7", "7"])("takes the days %s for Sundays", (days) => {
    const { text } = readSchedule(`0 0 * * ${days}`) ?? { text: "" };
    const monday = Date.UTC(2026, 10, 30);
    expect(new Date(nextCronTime(text, monday) ?? 0).toISOString()).toBe("2026-12-06T00:00:00.000Z");
  });
});
