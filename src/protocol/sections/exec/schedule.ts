import { Cron } from "croner";
import type { Schedule } from "./config.ts";

const UNITS: Readonly<Record<string, number>> = { minute: 60, hour: 3600, day: 86_400 };
const RATE = /^rate\(\s*(\d{1,6})\s+(minute|hour|day)s?\s*\)$/;
const LONGEST_SECONDS = 366 * 86_400;

// croner also reads times of day, nicknames, and extensions such as L and #.
const VALUE = "(?:\\d{1,2}|[a-z]{3})";
const PART = `(?:\\*|\\?|${VALUE}(?:-${VALUE})?)(?:/\\d{1,2})?`;
/** A range of one value. */
const ONE_VALUE = /\b(\w+)-\1\b(?:\/\d+)?/g;
const FIELDS = new RegExp(`^${PART}(?:,${PART}){0,63}(?: ${PART}(?:,${PART}){0,63}){4}$`);

/** Reads `rate(<n> minutes|hours|days)` or five cron fields (crontab(5)); undefined for anything else. */
export function readSchedule(text: string): Schedule | undefined {
  const line = text.trim().toLowerCase().replaceAll(/\s+/g, " ");
  const rate = RATE.exec(line);
  if (rate !== null) {
    const everySeconds = Number(rate[1]) * (UNITS[rate[2] ?? ""] ?? 0);
    if (everySeconds === 0 || everySeconds > LONGEST_SECONDS) return undefined;
    return { kind: "rate", everySeconds, text: line };
  }
  const cron = /^cron\((.*)\)$/.exec(line)?.[1]?.trim() ?? line;
  return FIELDS.test(cron) && occurs(cron) ? { kind: "cron", text: cron } : undefined;
}

/** Returns the first time after `after` that matches five cron fields in UTC; undefined if never. Unix milliseconds. @throws {TypeError} */
export function nextCronTime(text: string, after: number): number | undefined {
  // crontab(5): of a day of month and a day of week, one is enough unless either begins with an asterisk.
  const [, , dayOfMonth = "", , dayOfWeek = ""] = text.split(" ");
  const domAndDow = [dayOfMonth, dayOfWeek].some((field) => /^[*?]/.test(field));
  // croner takes sun-sun for the whole week.
  const pattern = text.replaceAll(ONE_VALUE, "$1");
  const cron = new Cron(pattern, { mode: "5-part", utcOffset: 0, domAndDow });
  return cron.nextRun(new Date(after))?.getTime();
}

function occurs(text: string): boolean {
  try {
    return nextCronTime(text, 0) !== undefined;
  } catch {
    return false;
  }
}
