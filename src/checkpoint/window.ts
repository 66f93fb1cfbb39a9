import { z } from "zod";
import { ProcessName } from "../host/process/process-tree.ts";
import { CONFIRM_SECONDS } from "../protocol/values/commit.ts";
import { Text64 } from "../protocol/values/values.ts";

/** A `save` is confirmed once it is proven; a `try` must also be confirmed by an operator before its deadline. */
export const WindowMode = z.enum(["save", "try"]);
export type WindowMode = z.infer<typeof WindowMode>;

/** Request of a change: how it is confirmed, and within how many seconds. */
export interface WindowRequest {
  readonly mode: WindowMode;
  readonly seconds: number;
}

/** Reasons for rolling a change back. */
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

/** Confirm window of one guarded pass. Unix milliseconds are for display; decisions use milliseconds since boot. */
export const Window = z.object({
  mode: WindowMode,
  /** Phases: steps are being applied; applied and to be proven; proven and to be confirmed. */
  state: z.enum(["applying", "proving", "awaiting-keep"]),
  bootId: Text64,
  openedAt: z.number(),
  deadlineAt: z.number(),
  /** Deadline by CLOCK_BOOTTIME, which cannot be set; valid only within the boot `bootId`. */
  deadline: z.number(),
  seconds: z.int().min(1).max(CONFIRM_SECONDS.max),
  /** Process of the agent that owns the change. */
  owner: ProcessName,
  /** Targets reached before the first step; they must be reached again. */
  before: z.object({ session: z.boolean(), gateways: z.array(z.string().max(300)).max(64) }),
  /** Versions of the documents that the change applies. */
  versions: z.record(Text64, z.number()),
  /** Pending desired value of each section that could cut the node off. */
  guards: z.record(Text64, z.unknown()),
  /** Targets that the first attempt after the last step did not reach. */
  unreached: z.string().max(2048).optional(),
  /** The sections come from an operator on this machine, not from the documents. */
  isLocal: z.boolean(),
  /** The change is being rolled back; this is final. */
  ending: RestoreReason.optional(),
});
export type Window = z.infer<typeof Window>;

/** Current time, as windows are evaluated. */
export interface Moment {
  readonly bootId: string;
  /** CLOCK_BOOTTIME in milliseconds. */
  readonly sinceBoot: number;
}

export type WindowEvent =
  /** All steps are applied. */
  | { readonly type: "applied" }
  /** All targets are reached again, over new connections. */
  | { readonly type: "proved" }
  | { readonly type: "keep" }
  | { readonly type: "revert" }
  /** The desired state changed. */
  | { readonly type: "superseded" }
  /** A step failed. */
  | { readonly type: "step-failed" }
  /** Time elapsed. */
  | { readonly type: "tick" }
  /** An agent starts and finds the pending change. */
  | { readonly type: "found" };

/** Action on a window after an event. */
export type WindowEnd =
  | { readonly do: "nothing" }
  | { readonly do: "store"; readonly window: Window }
  | { readonly do: "confirm" }
  | { readonly do: "restore"; readonly reason: RestoreReason };

/** Returns a window before its first step. `openedAt` is in Unix milliseconds. Pure. */
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

/** Returns the next state of a window and the action to take. Pure. Setting the clock has no effect; a reboot ends the window. */
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

/** Reports whether a window has expired: its deadline passed, or the machine rebooted. */
export function isExpired(window: Window, { bootId, sinceBoot }: Moment): boolean {
  return window.bootId !== bootId || sinceBoot >= window.deadline;
}

/** Returns the milliseconds left; zero once expired. */
export function leftOf(window: Window, now: Moment): number {
  return isExpired(window, now) ? 0 : window.deadline - now.sinceBoot;
}

function stored(window: Window, state: Window["state"]): WindowEnd {
  return { do: "store", window: { ...window, state } };
}
