import { z } from "zod";
import { ProcessName } from "../host/process/process-tree.ts";
import { CONFIRM_SECONDS } from "../protocol/values/commit.ts";
import { Text64 } from "../protocol/values/values.ts";

/** `save` stays once it is proven; `try` must also be kept before its time is over. */
export const WindowMode = z.enum(["save", "try"]);
export type WindowMode = z.infer<typeof WindowMode>;

/** What is asked of a change: how it ends, and within how many seconds. */
export interface WindowRequest {
  readonly mode: WindowMode;
  readonly seconds: number;
}

/** Why a window ends with a restore. */
export const RestoreReason = z.enum([
  "not-proven",
  "not-kept",
  "reverted",
  "superseded",
  "step-failed",
  "interrupted",
  "rebooted",
]);
export type RestoreReason = z.infer<typeof RestoreReason>;

/** The confirm window of one guarded pass. Moments are Unix milliseconds for people and milliseconds since boot for deciding. */
export const Window = z.object({
  mode: WindowMode,
  /** Steps are being taken; they are taken and must be proven; they are proven and must be kept. */
  state: z.enum(["applying", "proving", "awaiting-keep"]),
  bootId: Text64,
  openedAt: z.number(),
  deadlineAt: z.number(),
  /** By CLOCK_BOOTTIME, which nobody sets; counts within the boot `bootId` alone. */
  deadline: z.number(),
  seconds: z.int().min(1).max(CONFIRM_SECONDS.max),
  /** The agent that holds it. */
  owner: ProcessName,
  /** What was reached before the first step, to be reached again. */
  before: z.object({ session: z.boolean(), gateways: z.array(z.string().max(300)).max(64) }),
  /** The versions of the documents it belongs to. */
  versions: z.record(Text64, z.number()),
  /** The desired value of each section that could cut the node off, as it is tried. */
  guards: z.record(Text64, z.unknown()),
  /** Who was not reached at the first try after the last step. */
  unreached: z.string().max(2048).optional(),
  /** The sections are not of the documents: somebody tries them on this machine. */
  isLocal: z.boolean(),
  /** It is being taken back, and nothing changes that any more. */
  ending: RestoreReason.optional(),
});
export type Window = z.infer<typeof Window>;

/** A moment as the window is judged by. */
export interface Moment {
  readonly bootId: string;
  /** Milliseconds by CLOCK_BOOTTIME. */
  readonly sinceBoot: number;
}

export type WindowEvent =
  /** Every step was taken. */
  | { readonly type: "applied" }
  /** What was reached before is reached again, over new connections. */
  | { readonly type: "proved" }
  | { readonly type: "keep" }
  | { readonly type: "revert" }
  /** Something else is desired. */
  | { readonly type: "superseded" }
  /** A step could not be taken. */
  | { readonly type: "step-failed" }
  /** Time has passed. */
  | { readonly type: "tick" }
  /** An agent starts and finds it. */
  | { readonly type: "found" };

/** What is to be done with a window after an event. */
export type WindowEnd =
  | { readonly do: "nothing" }
  | { readonly do: "store"; readonly window: Window }
  | { readonly do: "confirm" }
  | { readonly do: "restore"; readonly reason: RestoreReason };

/** A window whose first step is yet to be taken. `openedAt` is in Unix milliseconds. Pure. */
export function openWindow(
  { mode, seconds }: WindowRequest,
  about: Pick<Window, "owner" | "before" | "versions" | "guards" | "isLocal">,
  openedAt: number,
  { bootId, sinceBoot }: Moment,
): Window {
  const ms = seconds * 1000;
  const times = { openedAt, deadlineAt: openedAt + ms, deadline: sinceBoot + ms };
  return { mode, state: "applying", bootId, ...times, seconds, ...about };
}

/** One step of a window's life. Pure; a clock that was set changes nothing, and another boot ends it. */
export function afterEvent(window: Window, event: WindowEvent, now: Moment): WindowEnd {
  if (window.ending !== undefined) return { do: "restore", reason: window.ending };
  if (window.bootId !== now.bootId) return { do: "restore", reason: "rebooted" };
  switch (event.type) {
    case "revert":
      return { do: "restore", reason: "reverted" };
    case "superseded":
      return { do: "restore", reason: "superseded" };
    case "step-failed":
      return { do: "restore", reason: "step-failed" };
    default:
  }
  if (isExpired(window, now)) {
    return { do: "restore", reason: window.state === "awaiting-keep" ? "not-kept" : "not-proven" };
  }
  switch (event.type) {
    case "applied":
      return window.state === "applying" ? stored(window, "proving") : { do: "nothing" };
    case "proved":
      if (window.state !== "proving") return { do: "nothing" };
      return window.mode === "save" ? { do: "confirm" } : stored(window, "awaiting-keep");
    case "keep":
      return window.state === "applying" ? { do: "nothing" } : { do: "confirm" };
    case "tick":
      return { do: "nothing" };
    case "found":
      return window.state === "awaiting-keep" ? { do: "nothing" } : { do: "restore", reason: "interrupted" };
  }
}

/** Whether its time is over: its deadline has passed, or the machine was started since. */
export function isExpired(window: Window, { bootId, sinceBoot }: Moment): boolean {
  return window.bootId !== bootId || sinceBoot >= window.deadline;
}

/** Milliseconds that are left; zero once it has expired. */
export function leftOf(window: Window, now: Moment): number {
  return isExpired(window, now) ? 0 : window.deadline - now.sinceBoot;
}

function stored(window: Window, state: Window["state"]): WindowEnd {
  return { do: "store", window: { ...window, state } };
}
