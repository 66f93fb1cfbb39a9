import { validate } from "node-cron";
import type { Schedule } from "./config.ts";

const UNITS: Readonly<Record<string, number>> = { minute: 60, hour: 3600, day: 86_400 };
const RATE = /^rate\(\s*(\d{1,6})\s+(minute|hour|day)s?\s*\)$/;
const LONGEST_SECONDS = 366 * 86_400;

// Bounds the fields: the library would expand a range such as 0-4294967295 in memory.
const VALUE = "(?:\\d{1,2}|[a-z]{3,9})";
const PART = `(?:\\*|\\?|${VALUE}(?:-${VALUE})?)(?:/\\d{1,2})?`;
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
  return FIELDS.test(cron) && validate(cron) ? { kind: "cron", text: cron } : undefined;
}
