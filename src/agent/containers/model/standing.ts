import type { ExecType } from "../../../protocol/sections/exec/config.ts";
import type { WorkState } from "./compute.ts";

/** What is wanted of one definition. */
export type Goal =
  /** Nobody has said yet: whatever is there is left as it is. */
  | { readonly is: "unknown" }
  | {
      readonly is: "kept";
      /** Of everything that only a new container can change. */
      readonly hash: string;
      readonly execType: ExecType;
      readonly enabled: boolean;
      /** The engine itself starts it again when it ends. */
      readonly engineRestarts: boolean;
      /** Until when it must not begin, in Unix milliseconds: its definition may be half written. */
      readonly heldUntil: number | undefined;
      /** Why it cannot be started as things are; what runs of it goes on. */
      readonly obstacle: string | undefined;
    }
  /** Stopped for a while, and nothing of it is taken away. */
  | { readonly is: "suspended" }
  | { readonly is: "gone" };

/** The container of a definition as the engine has it. */
export interface Found {
  readonly id: string;
  readonly hash: string;
  readonly is: "running" | "restarting" | "stopped";
  /** What a replacement that was cut short has left beside it is still to be cleared away. */
  readonly isUntidy?: boolean | undefined;
  /** Of its last run, when that has ended. */
  readonly exitCode?: number | undefined;
}

export type JobKind = "start" | "restart" | "tidy" | "stop" | "remove";

/** What is being done at the engine; one thing at a time. */
export interface Job {
  readonly kind: JobKind;
  /** Whether it only brings back what had ended by itself, with the image it had. */
  readonly isCrash: boolean;
  readonly number: number;
  /** Of the goal that it serves. */
  readonly hash: string | undefined;
  /** Where a start stands: the image is looked for, fetched, or there. */
  readonly phase: "image" | "pulling" | "creating";
  readonly isCancelled: boolean;
}

/** Reports whether the engine is to start it again by itself, at a time that it does not tell. */
export function isEnginesTurn({ found, retry }: Pick<Standing, "found" | "retry">): boolean {
  return retry?.after === "crash" && found?.is === "restarting";
}

/** Why and until when nothing is tried. */
export interface Retry {
  readonly at: number;
  /** When it was decided upon: earlier than that it can only be after the clock was set back. */
  readonly since: number;
  /** `stop`: somebody, or the engine as it shut down, has stopped it. */
  readonly after: "failure" | "condition" | "crash" | "engine" | "stop";
  readonly reason: string;
}

/** Everything that is decided upon; times in Unix milliseconds. */
export interface Standing {
  readonly goal: Goal;
  readonly found: Found | undefined;
  readonly job: Job | undefined;
  readonly jobs: number;
  readonly retry: Retry | undefined;
  /** The hash of the definition that was stopped by hand. */
  readonly byHand: string | undefined;
  /** A run is asked for: by hand, or because it is due. */
  readonly isAsked: boolean;
  /** The run that is on shall end. */
  readonly isEnding: boolean;
  /** It shall be stopped and started, by hand. */
  readonly isRestarting: boolean;
  /** Somebody took the container away; the next pass brings it back. */
  readonly isLost: boolean;
  readonly failures: number;
  readonly crashes: number;
  readonly exits: number;
  readonly lastExitCode: number | undefined;
  readonly startedAt: number;
  /** Why the last start did not come about, of one that is not tried again. */
  readonly lastFailure: string | undefined;
  /** The code of the condition of the machine, if that is the reason of `lastFailure`. */
  readonly failureCode: string | undefined;
}

export type Wish = "run" | "leave" | "stop" | "remove";

/** Where one begins of which the engine has this much, and the ledger that it was stopped by hand. */
export function beginning(found: Found | undefined, byHand: string | undefined): Standing {
  return {
    goal: { is: "unknown" },
    found,
    job: undefined,
    jobs: 0,
    retry: undefined,
    byHand,
    isAsked: false,
    isEnding: false,
    isRestarting: false,
    isLost: false,
    failures: 0,
    crashes: 0,
    exits: 0,
    lastExitCode: undefined,
    startedAt: 0,
    lastFailure: undefined,
    failureCode: undefined,
  };
}

/** How long a new service without any extended part waits for the rest of its definition, at most. */
export const HOLD_MS = 75_000;

/** Whether a retry is still waited for. A clock that was set back makes no wait longer than it was meant. */
export function isAhead(retry: Retry | undefined, now: number): retry is Retry {
  return retry !== undefined && retry.at > now && retry.since <= now;
}

/** Whether it is too early to begin with what a goal wants. */
export function isHeld(goal: Goal, now: number): boolean {
  if (goal.is !== "kept" || goal.heldUntil === undefined) return false;
  return goal.heldUntil > now && goal.heldUntil <= now + HOLD_MS;
}

/** When it must be looked at again although nothing happens. */
export function wakeAt({ goal, job, retry }: Standing, now: number): number | undefined {
  if (job !== undefined) return undefined;
  const held = isHeld(goal, now) && goal.is === "kept" ? goal.heldUntil : undefined;
  const times = [isAhead(retry, now) ? retry.at : undefined, held];
  const known = times.flatMap((time) => time ?? []);
  return known.length === 0 ? undefined : Math.min(...known);
}

/** Where it stands, for people and the wire: what runs is running, whatever is tried besides. */
export function standsAt(standing: Standing, now: number): { readonly state: WorkState; readonly reason?: string } {
  const { goal, found, job, retry } = standing;
  const why = reasonOf(standing, now);
  const because = why === undefined ? {} : { reason: why };
  if (job?.kind === "stop" || job?.kind === "remove") return { state: "stopping", ...because };
  if (found?.is === "running" && job?.phase !== "creating") {
    const isParting = retry !== undefined && wishOf(standing) === "stop";
    return { state: isParting ? "stopping" : "running", ...because };
  }
  if (job !== undefined) return { state: job.phase === "creating" ? "creating" : "pulling", ...because };
  if (found?.is === "restarting") return { state: "backoff", ...because };
  if (isAhead(retry, now)) return { state: retry.after === "condition" ? "waiting" : "backoff", ...because };
  const isWaiting = goal.is === "kept" && wishOf(standing) === "run" && why !== undefined;
  return { state: isWaiting ? "waiting" : "idle", ...because };
}

/** Whether nothing is at work that ends by itself within seconds. */
export function isParked({ job }: Standing): boolean {
  return job === undefined || (job.phase === "pulling" && !job.isCancelled);
}

/** Whether a run of it is on, or about to be. */
export function isBusy({ found, job }: Standing): boolean {
  return found?.is === "running" || found?.is === "restarting" || job?.kind === "start" || job?.kind === "restart";
}

/** Whether what is wanted is not reached yet. */
export function isWanting(standing: Standing): boolean {
  const { goal, found, job } = standing;
  switch (wishOf(standing)) {
    case "run":
      return !(found?.is === "running" && goal.is === "kept" && found.hash === goal.hash) && !standing.isLost;
    case "stop":
      return isUp(found) || job !== undefined;
    case "remove":
      return true;
    case "leave":
      return false;
  }
}

/** What is to become of its process. */
export function wishOf(standing: Standing): Wish {
  const { goal, byHand, isAsked, isEnding, isRestarting } = standing;
  if (goal.is === "unknown") return "leave";
  if (goal.is === "gone") return "remove";
  if (goal.is === "suspended" || !goal.enabled || isEnding) return "stop";
  if (goal.execType === "service") return byHand === goal.hash ? "stop" : "run";
  return isAsked || isRestarting ? "run" : "leave";
}

function reasonOf(standing: Standing, now: number): string | undefined {
  const { goal, found, retry, isLost, lastFailure } = standing;
  if (isAhead(retry, now)) {
    return isEnginesTurn(standing) ? `${retry.reason}; the container engine starts it again` : retry.reason;
  }
  if (lastFailure !== undefined) return lastFailure;
  // What must not run has a reason for it; what nobody wants to run needs none.
  if (goal.is === "kept" && !goal.enabled) return goal.obstacle;
  if (goal.is !== "kept" || wishOf(standing) !== "run") return undefined;
  if (found?.is === "running" && found.hash === goal.hash) return undefined;
  if (goal.obstacle !== undefined) return goal.obstacle;
  if (isHeld(goal, now)) return "its definition may be half written";
  return isLost ? "the container was removed by somebody else" : undefined;
}

/** Whether it may run at all. */
export function canRun(goal: Goal): boolean {
  return goal.is === "kept" && goal.enabled;
}

/** Whether it has a process, or is about to have one again. */
export function isUp(found: Found | undefined): boolean {
  return found?.is === "running" || found?.is === "restarting";
}

/** Of what is wanted; undefined when nothing is to run. */
export function hashOf(goal: Goal): string | undefined {
  return goal.is === "kept" ? goal.hash : undefined;
}
