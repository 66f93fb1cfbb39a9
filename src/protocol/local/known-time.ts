import { z } from "zod";
import { UnixMilliseconds } from "../values/values.ts";

/** The last time received from a control plane, as stored in the state directory. */
export const KnownTimeRecord = z.object({ at: UnixMilliseconds });
export type KnownTimeRecord = z.infer<typeof KnownTimeRecord>;

/** File name below the state directory. */
export const KNOWN_TIME_FILE = "reported/known-time.json";

/** A wall clock that shows less than it must be at least, and how that is known. */
export const ClockBehind = z.object({
  state: z.literal("clock-behind"),
  /** Time of the wall clock, and the earliest possible time. */
  clockAt: UnixMilliseconds,
  knownAt: UnixMilliseconds,
  by: z.enum(["build", "control-plane"]),
});
export type ClockBehind = z.infer<typeof ClockBehind>;

/** Lower bound of the current time in Unix milliseconds, and its source. */
export interface LeastTime {
  readonly at: number;
  readonly by: ClockBehind["by"];
}

/** Clock offsets in seconds from which a check warns and fails. */
export const CLOCK_LIMITS_S = { warn: 60, fail: 300 } as const;

/** Returns the later of the build's time and the last time of a control plane. Pure. */
export function leastTime(builtAt: number | undefined, receivedAt: number | undefined): LeastTime | undefined {
  if (receivedAt !== undefined && receivedAt >= (builtAt ?? 0)) return { at: receivedAt, by: "control-plane" };
  return builtAt === undefined ? undefined : { at: builtAt, by: "build" };
}

/** Reports whether a wall clock is behind the known time. Pure. */
export function judgeClock(clockAt: number, least: LeastTime | undefined): ClockBehind | undefined {
  if (least === undefined || clockAt >= least.at - CLOCK_LIMITS_S.fail * 1000) return undefined;
  const inRange = (ms: number): number => Math.max(0, Math.round(ms));
  return { state: "clock-behind", clockAt: inRange(clockAt), knownAt: inRange(least.at), by: least.by };
}

/** Both times and how the later one is known, and what a person can do. Pure. */
export function clockBehindText({ clockAt, knownAt, by }: ClockBehind): {
  readonly message: string;
  readonly fix: string;
} {
  const source = by === "build" ? "when this program was built" : "as the control plane told";
  return {
    message: `clock-behind: this machine's clock is at ${momentText(clockAt)}, and it is ${momentText(knownAt)} or later (${source})`,
    fix: "set the clock (date -u -s 'YYYY-MM-DD hh:mm:ss'), or see that its time synchronisation reaches a server; a battery that is empty loses the time at each start",
  };
}

/** A moment in Unix milliseconds as `2026-11-21 18:30:00 UTC`. Pure. */
export function momentText(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
