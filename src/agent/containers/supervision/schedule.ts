import type { Schedule } from "../../../protocol/sections/exec/config.ts";

/** Fields of a cron expression as lists of matching values. */
export interface CronFields {
  readonly minute: readonly number[];
  readonly hour: readonly number[];
  readonly dayOfMonth: readonly number[];
  readonly month: readonly number[];
  readonly dayOfWeek: readonly number[];
  /** Whether day of month and day of week are restricted; if both are, either one matches (crontab(5)). */
  readonly isByMonthDay: boolean;
  readonly isByWeekDay: boolean;
}

/** A schedule; `next(after)` is in Unix milliseconds, or undefined if never. */
export interface Timetable {
  next(after: number): number | undefined;
  /** Returns the next run after the last planned one; missed runs are skipped. */
  resume(planned: number, now: number): number | undefined;
}

/** Reads a schedule. @throws {Error} of the cron expression. */
export async function timetable(schedule: Schedule): Promise<Timetable> {
  if (schedule.kind === "rate") return rateTimetable(schedule.everySeconds * 1000);
  return cronTimetable(await readCron(schedule.text));
}

/** Schedule with equal intervals; the first run is one interval from now. */
export function rateTimetable(everyMs: number): Timetable {
  return {
    next: (after) => after + everyMs,
    resume: (planned, now) =>
      planned > now ? Math.min(planned, now + everyMs) : planned + Math.ceil((now - planned + 1) / everyMs) * everyMs,
  };
}

/** Schedule with five cron fields in UTC. */
function cronTimetable(fields: CronFields): Timetable {
  return { next: (after) => nextMatch(fields, after), resume: (_planned, now) => nextMatch(fields, now) };
}

/** Loaded on demand: the parser takes 10 MB. */
async function readCron(text: string): Promise<CronFields> {
  const { parse } = await import("node-cron");
  const words = text.trim().split(/\s+/);
  const { minute, hour, dayOfMonth, month, dayOfWeek } = parse(text);
  return {
    minute,
    hour,
    month,
    dayOfMonth: numbersOf(text, dayOfMonth),
    dayOfWeek: numbersOf(text, dayOfWeek),
    isByMonthDay: words[2]?.startsWith("*") === false,
    isByWeekDay: words[4]?.startsWith("*") === false,
  };
}

function numbersOf(text: string, list: readonly (number | string)[]): readonly number[] {
  return list.map((value) => {
    if (typeof value === "number") return value;
    throw new Error(`${text}: ${value} is no day`);
  });
}

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
/** Search limit in years: a 29 February on a given weekday occurs within it. */
const MAX_DAYS = 41 * 366;

function nextMatch(fields: CronFields, after: number): number | undefined {
  const from = (Math.floor(after / MINUTE_MS) + 1) * MINUTE_MS;
  let day = Math.floor(from / DAY_MS) * DAY_MS;
  for (let count = 0; count < MAX_DAYS; count += 1, day += DAY_MS) {
    if (!isDay(fields, new Date(day))) continue;
    for (const hour of sorted(fields.hour)) {
      for (const minute of sorted(fields.minute)) {
        const at = day + hour * HOUR_MS + minute * MINUTE_MS;
        if (at >= from) return at;
      }
    }
  }
  return undefined;
}

function isDay(fields: CronFields, date: Date): boolean {
  if (!fields.month.includes(date.getUTCMonth() + 1)) return false;
  const isMonthDay = fields.dayOfMonth.includes(date.getUTCDate());
  const isWeekDay = fields.dayOfWeek.some((day) => day % 7 === date.getUTCDay());
  return fields.isByMonthDay && fields.isByWeekDay ? isMonthDay || isWeekDay : isMonthDay && isWeekDay;
}

const sorted = (values: readonly number[]): readonly number[] => values.toSorted((one, other) => one - other);
