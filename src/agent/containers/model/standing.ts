import type { ExecType } from "../../../protocol/sections/exec/config.ts";
import type { WorkState } from "./compute.ts";

/** Desired state of one definition. */
export type Goal =
  /** Unknown yet: existing containers stay as they are. */
  | { readonly is: "unknown" }
  | {
      readonly is: "kept";
      /** Hash of everything that only a new container can change. */
      readonly hash: string;
      readonly execType: ExecType;
      readonly enabled: boolean;
      /** True if the engine restarts it. */
      readonly engineRestarts: boolean;
      /** Earliest start in Unix milliseconds: the definition may be incomplete. */
      readonly heldUntil: number | undefined;
      /** Reason why it cannot start now; a running container continues. */
      readonly obstacle: string | undefined;
    }
  /** Suspended: stopped, nothing removed. */
  | { readonly is: "suspended" }
  | { readonly is: "gone" };

/** The engine's container of a definition. */
export interface Found {
  readonly id: string;
  readonly hash: string;
  readonly is: "running" | "restarting" | "stopped";
  /** True if leftovers of an interrupted replacement must be removed. */
  readonly isUntidy?: boolean | undefined;
  /** Exit of its last run. */
  readonly exitCode?: number | undefined;
}

export type JobKind = "start" | "restart" | "tidy" | "stop" | "remove";

/** The current job at the engine. */
export interface Job {
  readonly kind: JobKind;
  /** True if it only restarts an ended container with its image. */
  readonly isCrash: boolean;
  readonly number: number;
  /** Hash of its goal. */
  readonly hash: string | undefined;
  /** Phase of a start: checking, pulling, or having the image. */
  readonly phase: "image" | "pulling" | "creating";
  readonly isCancelled: boolean;
}

/** Reports whether the engine will restart it at an unknown time. */
export function isEnginesTurn({ found, retry }: Pick<Standing, "found" | "retry">): boolean {
  return retry?.after === "crash" && found?.is === "restarting";
}

/** A wait: its reason and end. */
export interface Retry {
  readonly at: number;
  /** Time of the decision; an earlier clock means that it was set back. */
  readonly since: number;
  /** `stop`: stopped by somebody, or by the engine while shutting down. */
  readonly after: "failure" | "condition" | "crash" | "engine" | "stop";
  readonly reason: string;
}

/** Input of the decisions; times in Unix milliseconds. */
export interface Standing {
  readonly goal: Goal;
  readonly found: Found | undefined;
  readonly job: Job | undefined;
  readonly jobs: number;
  readonly retry: Retry | undefined;
  /** The hash of the definition that was stopped by hand. */
  readonly byHand: string | undefined;
  /** A run is requested: by hand or by schedule. */
  readonly isAsked: boolean;
  /** The current run must end. */
  readonly isEnding: boolean;
  /** A restart is requested by hand. */
  readonly isRestarting: boolean;
  /** Somebody removed the container; the next pass restores it. */
  readonly isLost: boolean;
  readonly failures: number;
  readonly crashes: number;
  readonly exits: number;
  readonly lastExitCode: number | undefined;
  readonly startedAt: number;
  /** Reason why the last start failed, if it is not retried. */
  readonly lastFailure: string | undefined;
  /** Code of the machine's condition behind `lastFailure`. */
  readonly failureCode: string | undefined;
}

export type Wish = "run" | "leave" | "stop" | "remove";

/** Returns the initial state from the engine's container and the ledger's note of a manual stop. */
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

/** Maximum wait of a new service for the rest of its definition, in milliseconds. */
export const HOLD_MS = 75_000;

/** Reports whether a retry must still wait. Setting the clock back does not extend the wait. */
export function isAhead(retry: Retry | undefined, now: number): retry is Retry {
  return retry !== undefined && retry.at > now && retry.since <= now;
}

/** Reports whether it is too early to start a goal. */
export function isHeld(goal: Goal, now: number): boolean {
  if (goal.is !== "kept" || goal.heldUntil === undefined) return false;
  return goal.heldUntil > now && goal.heldUntil <= now + HOLD_MS;
}

/** Returns when to re-evaluate without an event. */
export function wakeAt({ goal, job, retry }: Standing, now: number): number | undefined {
  if (job !== undefined) return undefined;
  const held = isHeld(goal, now) && goal.is === "kept" ? goal.heldUntil : undefined;
  const times = [isAhead(retry, now) ? retry.at : undefined, held];
  const known = times.flatMap((time) => time ?? []);
  return known.length === 0 ? undefined : Math.min(...known);
}

/** Returns the displayed state: a running container is `running`, regardless of other attempts. */
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

/** Reports whether no short job is running. */
export function isParked({ job }: Standing): boolean {
  return job === undefined || (job.phase === "pulling" && !job.isCancelled);
}

/** Reports whether a run is active or about to start. */
export function isBusy({ found, job }: Standing): boolean {
  return found?.is === "running" || found?.is === "restarting" || job?.kind === "start" || job?.kind === "restart";
}

/** Reports whether the goal is not reached yet. */
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

/** Returns what must happen to its process. */
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
  // A container that must not run has a reason; an unwanted one needs none.
  if (goal.is === "kept" && !goal.enabled) return goal.obstacle;
  if (goal.is !== "kept" || wishOf(standing) !== "run") return undefined;
  if (found?.is === "running" && found.hash === goal.hash) return undefined;
  if (goal.obstacle !== undefined) return goal.obstacle;
  if (isHeld(goal, now)) return "its definition may be half written";
  return isLost ? "the container was removed by somebody else" : undefined;
}

/** Reports whether it may run. */
export function canRun(goal: Goal): boolean {
  return goal.is === "kept" && goal.enabled;
}

/** Reports whether it has a process or will soon have one. */
export function isUp(found: Found | undefined): boolean {
  return found?.is === "running" || found?.is === "restarting";
}

/** Hash of the goal; undefined if nothing should run. */
export function hashOf(goal: Goal): string | undefined {
  return goal.is === "kept" ? goal.hash : undefined;
}
