import { nextCronTime } from "../../../protocol/sections/exec/schedule.ts";
import type { Schedule } from "../../../protocol/sections/exec/config.ts";

/** A schedule; `next(after)` is in Unix milliseconds, or undefined if never. */
export interface Timetable {
  next(after: number): number | undefined;
  /** Returns the next run after the last planned one; missed runs are skipped. */
  resume(planned: number, now: number): number | undefined;
}

export function timetable(schedule: Schedule): Timetable {
  if (schedule.kind === "rate") return rateTimetable(schedule.everySeconds * 1000);
  const { text } = schedule;
  return { next: (after) => nextCronTime(text, after), resume: (_planned, now) => nextCronTime(text, now) };
}

/** Schedule with equal intervals; the first run is one interval from now. */
export function rateTimetable(everyMs: number): Timetable {
  return {
    next: (after) => after + everyMs,
    resume: (planned, now) =>
      planned > now ? Math.min(planned, now + everyMs) : planned + Math.ceil((now - planned + 1) / everyMs) * everyMs,
  };
}
