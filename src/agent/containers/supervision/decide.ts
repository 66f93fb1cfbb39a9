import { backoff } from "../../../lib/async/backoff.ts";
import {
  canRun,
  hashOf,
  isAhead,
  isBusy,
  isHeld,
  isUp,
  wishOf,
  type Found,
  type Goal,
  type Job,
  type JobKind,
  type Retry,
  type Standing,
} from "../model/standing.ts";

export type Event =
  | { readonly is: "wanted"; readonly goal: Goal }
  | { readonly is: "asked"; readonly to: "start" | "stop" | "restart" }
  | { readonly is: "due" }
  | { readonly is: "found"; readonly found: Found | undefined }
  /** Its process ended; `found` is the engine's state since. */
  | { readonly is: "exited"; readonly found: Found; readonly code: number | undefined }
  /** It was stopped at the engine: by somebody, or by the engine shutting down. */
  | { readonly is: "stopped"; readonly id: string }
  /** Somebody stopped it at the engine, which still runs. */
  | { readonly is: "stopped-outside"; readonly id: string }
  /** The engine has shut down since the stop; `engine-well` follows. */
  | { readonly is: "stopped-with-engine"; readonly id: string }
  | { readonly is: "phase"; readonly number: number; readonly phase: Job["phase"] }
  | { readonly is: "ended"; readonly number: number; readonly result: JobResult; readonly found: Found | undefined }
  | { readonly is: "engine-well" }
  | { readonly is: "tick" };

export type JobResult =
  | { readonly is: "done" }
  | { readonly is: "cancelled" }
  /** Blocked: the engine or a condition of the machine is missing. */
  | {
      readonly is: "failed";
      readonly reason: string;
      /** Code of the machine's condition, if that is the reason. */
      readonly code?: string | undefined;
      readonly isEngine: boolean;
      readonly isWaiting?: boolean;
    };

export type Effect =
  | { readonly do: "begin"; readonly job: Job }
  | { readonly do: "cancel"; readonly number: number }
  | { readonly do: "note-by-hand"; readonly hash: string | undefined };

/** Time for the engine to restart a container before it is asked; after `docker kill` it does not restart it. */
const ENGINE_GRACE_MS = 5000;
/** Longer than the detection of the engine's shutdown. */
const STOP_GRACE_MS = 15_000;
/** The engine waits at most a minute before a restart, and reports `restarting` meanwhile. */
const ENGINE_BACKOFF_MS = 75_000;

/** Delays between restarts of a container that exits, as the Docker Engine's, and the run after which they start anew. */
const CRASH = { firstMs: 100, maxMs: 60_000 };
const STABLE_RUN_MS = 10_000;
/** Delays between starts that fail. */
const FAILURE = { firstMs: 5000, maxMs: 600_000 };

/** Returns a definition's next state and actions after an event. Pure. */
export function decide(standing: Standing, event: Event, now: number): readonly [Standing, readonly Effect[]] {
  const [after, effects] = take(standing, event, now);
  const [settled, more] = settle(after, now);
  return [settled, [...effects, ...more]];
}

function take(before: Standing, event: Event, now: number): readonly [Standing, readonly Effect[]] {
  switch (event.is) {
    case "wanted":
      return wanted(before, event.goal);
    case "asked":
      return asked(before, event.to);
    case "due":
      return [isBusy(before) || !canRun(before.goal) ? before : { ...before, isAsked: true }, []];
    case "found":
      return foundAt(before, event.found, now);
    case "stopped":
      return [stopped(before, event.id, now), []];
    case "stopped-outside":
      return stoppedOutside(before, event.id);
    case "stopped-with-engine":
      return [stoppedWithEngine(before, event.id), []];
    case "exited":
      return [exited(before, event, now), []];
    case "phase":
      if (before.job?.number !== event.number) return [before, []];
      return [{ ...before, job: { ...before.job, phase: event.phase } }, []];
    case "ended":
      return [ended(before, event, now), []];
    case "engine-well":
      return [before.retry?.after === "engine" ? { ...before, retry: undefined } : before, []];
    case "tick":
      return [isAhead(before.retry, now) ? before : { ...before, retry: undefined }, []];
  }
}

function wanted(before: Standing, goal: Goal): readonly [Standing, readonly Effect[]] {
  const isNew = hashOf(goal) !== hashOf(before.goal);
  // A retry belongs to the old goal; a new goal is tried at once.
  const fresh = { retry: undefined, failures: 0, lastFailure: undefined, failureCode: undefined };
  const after: Standing = {
    ...before,
    ...fresh,
    ...(isNew ? { crashes: 0 } : {}),
    goal,
    isLost: false,
    isAsked: before.isAsked && canRun(goal),
  };
  const isForgotten = before.byHand !== undefined && goal.is === "kept" && goal.hash !== before.byHand;
  return isForgotten ? [{ ...after, byHand: undefined }, [{ do: "note-by-hand", hash: undefined }]] : [after, []];
}

function asked(before: Standing, to: "start" | "stop" | "restart"): readonly [Standing, readonly Effect[]] {
  const { goal, found, job } = before;
  if (goal.is !== "kept") return [before, []];
  if (to === "stop") {
    const isOn = isUp(found) || job?.kind === "start" || job?.kind === "restart";
    const after = { ...before, retry: undefined, isAsked: false, isRestarting: false, isEnding: isOn };
    if (goal.execType !== "service") return [after, []];
    return [{ ...after, byHand: goal.hash }, [{ do: "note-by-hand", hash: goal.hash }]];
  }
  const freed: readonly Effect[] = before.byHand === undefined ? [] : [{ do: "note-by-hand", hash: undefined }];
  const after: Standing = {
    ...before,
    goal: { ...goal, heldUntil: undefined },
    byHand: undefined,
    retry: undefined,
    failures: 0,
    crashes: 0,
    isLost: false,
    isEnding: false,
    lastFailure: undefined,
    failureCode: undefined,
    isAsked: goal.execType !== "service" && goal.enabled,
    // A container that the engine would restart later is started now.
    isRestarting: found?.is === "restarting" || (to === "restart" && found?.is === "running"),
  };
  return [after, freed];
}

function foundAt(before: Standing, found: Found | undefined, now: number): readonly [Standing, readonly Effect[]] {
  // During a job an observation may be of any moment of it. Tidying starts nothing, so somebody has started a stopped container again.
  const isStarted = found?.is === "running" && found.id === before.found?.id && before.found.is === "stopped";
  if (before.job !== undefined && (isReplacing(before) || !isStarted)) return [before, []];
  const isLost = found === undefined && (before.isLost || before.found !== undefined);
  const after: Standing = { ...before, found, isLost };
  if (found?.is !== "running" || before.found?.is === "running") return [after, []];
  const started: Standing = {
    ...after,
    startedAt: now,
    retry: before.retry?.after === "crash" || before.retry?.after === "stop" ? undefined : before.retry,
  };
  // Started at the engine by somebody, or by the engine, which does not know that it should stay stopped.
  if (before.byHand === undefined) return [started, []];
  return [{ ...started, byHand: undefined }, [{ do: "note-by-hand", hash: undefined }]];
}

/** Waits until it is known whether the engine is shutting down. */
function stopped(before: Standing, id: string, now: number): Standing {
  const { goal, found } = before;
  if (isReplacing(before) || found?.id !== id || goal.is !== "kept" || goal.execType !== "service") return before;
  const reason = "it was stopped at the container engine";
  const retry: Retry = { at: now + STOP_GRACE_MS, since: now, after: "stop", reason };
  return { ...before, found: { ...found, is: "stopped" }, retry };
}

/** Reports whether a job may stop the container itself; tidying stops only others. */
const isReplacing = ({ job }: Standing): boolean => job !== undefined && job.kind !== "tidy";

/** Reports whether nothing changed since it was stopped at the engine. */
function isStopped(standing: Standing, id: string): boolean {
  return !isReplacing(standing) && standing.found?.id === id && standing.retry?.after === "stop";
}

/** Waits for the engine, which may restart the container itself. */
function stoppedWithEngine(before: Standing, id: string): Standing {
  const { retry } = before;
  if (retry === undefined || !isStopped(before, id)) return before;
  return { ...before, retry: { ...retry, after: "engine", reason: "the container engine has shut down" } };
}

function stoppedOutside(before: Standing, id: string): readonly [Standing, readonly Effect[]] {
  const { goal } = before;
  if (!isStopped(before, id) || goal.is !== "kept" || goal.execType !== "service") return [before, []];
  const after: Standing = {
    ...before,
    byHand: goal.hash,
    retry: undefined,
    lastFailure: undefined,
    failureCode: undefined,
  };
  return [after, before.byHand === goal.hash ? [] : [{ do: "note-by-hand", hash: goal.hash }]];
}

function exited(
  before: Standing,
  { found, code }: { readonly found: Found; readonly code: number | undefined },
  now: number,
): Standing {
  if (before.found?.id !== found.id || before.job !== undefined || before.found.is === "stopped") return before;
  // A container that the engine will restart counts as about to run.
  const isAwaited = before.goal.is === "kept" && before.goal.engineRestarts && found.is === "stopped";
  return over({ ...before, found: isAwaited ? { ...found, is: "restarting" } : found }, code, now);
}

/** Handles the end of a run. */
function over(before: Standing, code: number | undefined, now: number): Standing {
  const after: Standing = {
    ...before,
    exits: before.exits + 1,
    lastExitCode: code,
    isAsked: false,
    isEnding: false,
    isRestarting: false,
  };
  const { goal, found } = after;
  if (wishOf(after) !== "run" || found?.is === "running" || goal.is !== "kept") return after;
  const crashes = now - before.startedAt >= STABLE_RUN_MS ? 1 : before.crashes + 1;
  const reason = code === undefined ? "it ended" : `it ended with exit code ${code}`;
  // The start is repeated only if the engine has not done it by then; the engine does not start removed containers.
  const isAwaited = goal.engineRestarts && found !== undefined;
  const at = now + backoff(crashes, CRASH) + (isAwaited ? ENGINE_GRACE_MS : 0);
  return { ...after, crashes, retry: { at, since: now, after: "crash", reason } };
}

function ended(
  before: Standing,
  { number, result, found }: { readonly number: number; readonly result: JobResult; readonly found: Found | undefined },
  now: number,
): Standing {
  const { job } = before;
  if (job?.number !== number) return before;
  const after: Standing = { ...before, job: undefined, found };
  const isStart = job.kind === "start" || job.kind === "restart";
  if (result.is === "done") {
    const fresh = { failures: 0, retry: undefined, lastFailure: undefined, failureCode: undefined, isEnding: false };
    // Nothing of it is left.
    const isGone = job.kind === "remove" && after.goal.is === "gone";
    if (isGone) return { ...after, ...fresh, goal: { is: "unknown" } };
    // A start requested meanwhile does not wait for the engine's restart.
    if (job.kind === "tidy" && before.isRestarting) return { ...after, ...fresh };
    if (job.kind === "tidy") return tidied(before, { ...after, ...fresh, isEnding: before.isEnding }, now);
    if (!isStart) return { ...after, ...fresh };
    const started: Standing = { ...after, ...fresh, isAsked: false, isRestarting: false, startedAt: now };
    // The run may have ended before the first observation.
    return found?.is === "running" ? started : over({ ...started, crashes: before.crashes }, found?.exitCode, now);
  }
  if (result.is === "cancelled" || job.isCancelled) return after;
  const { reason, code, isEngine, isWaiting = false } = result;
  const cause = isWaiting ? "condition" : "failure";
  const failures = before.failures + 1;
  const retry: Retry = { at: now + backoff(failures, FAILURE), since: now, after: isEngine ? "engine" : cause, reason };
  const failed = { lastFailure: reason, failureCode: code };
  // A manual run is only retried by hand.
  const isOnce = isStart && before.goal.is === "kept" && before.goal.execType === "onDemand";
  if (isOnce) return { ...after, ...failed, isAsked: false, isRestarting: false };
  const wasStopped = before.retry?.after === "stop" && found?.is !== "running";
  if (wasStopped || (job.kind === "tidy" && wishOf(after) !== "run")) return { ...after, ...failed, failures };
  return { ...after, ...failed, failures, retry };
}

/** Returns the state after tidying. */
function tidied(before: Standing, after: Standing, now: number): Standing {
  const { found } = after;
  // A retry that began meanwhile is that of a stop at the engine.
  if (before.retry !== undefined && found?.is !== "running") return { ...after, retry: before.retry };
  // It ended meanwhile; that it was stopped at the engine may be heard next.
  if (before.found?.is === "running" && found?.is === "stopped" && found.id === before.found.id) {
    return over(after, found.exitCode, now);
  }
  return { ...after, retry: afterTidying(before, found, now) };
}

/** Returns when to re-check failed clean-ups and pending restarts by the engine. */
function afterTidying({ failures }: Standing, found: Found | undefined, now: number): Retry | undefined {
  if (found?.is === "restarting") {
    return { at: now + ENGINE_BACKOFF_MS, since: now, after: "crash", reason: "it ended" };
  }
  if (found?.isUntidy !== true) return undefined;
  const reason = "a previous container is not removed yet";
  return { at: now + backoff(failures, FAILURE), since: now, after: "failure", reason };
}

/** Returns the next action of a state. */
function settle(standing: Standing, now: number): readonly [Standing, readonly Effect[]] {
  const { goal, found, job, retry, isLost } = standing;
  const wish = wishOf(standing);
  if (job !== undefined) {
    if (job.isCancelled || isServed(job, standing)) return [standing, []];
    return [{ ...standing, job: { ...job, isCancelled: true } }, [{ do: "cancel", number: job.number }]];
  }
  if (isAhead(retry, now)) {
    // A stop does not wait for a retry.
    const isIdle = retry.after === "crash" || retry.after === "stop";
    if (!isIdle || wish === "run") return [standing, []];
    return settle({ ...standing, retry: undefined }, now);
  }
  if (retry !== undefined) return settle({ ...standing, retry: undefined }, now);
  switch (wish) {
    case "remove":
      return begin(standing, "remove");
    case "stop":
      return isUp(found) ? begin(standing, "stop") : [ceased(standing), []];
    case "leave":
      return [standing, []];
    case "run": {
      if (goal.is !== "kept") return [standing, []];
      if (found?.is === "running" && found.hash === goal.hash) {
        if (standing.isRestarting) return begin(standing, "restart");
        return found.isUntidy === true ? begin(standing, "tidy") : [{ ...standing, isAsked: false }, []];
      }
      // After a failed wait for the engine, its state is read again.
      if (found?.is === "restarting" && found.hash === goal.hash) {
        return begin(standing, standing.isRestarting ? "restart" : "tidy");
      }
      return isHeld(goal, now) || isLost || goal.obstacle !== undefined ? [standing, []] : begin(standing, "start");
    }
  }
}

function begin(standing: Standing, kind: JobKind): readonly [Standing, readonly Effect[]] {
  const phase = kind === "start" || kind === "restart" ? "image" : "creating";
  const number = standing.jobs + 1;
  const isCrash = kind === "start" && standing.crashes > 0 && standing.failures === 0;
  const job: Job = { kind, isCrash, number, hash: hashOf(standing.goal), phase, isCancelled: false };
  return [{ ...standing, job, jobs: number }, [{ do: "begin", job }]];
}

function ceased(standing: Standing): Standing {
  return standing.isEnding ? { ...standing, isEnding: false } : standing;
}

/** Reports whether the current job still serves the goal. */
function isServed(job: Job, standing: Standing): boolean {
  const wish = wishOf(standing);
  // Stopping the process is needed in any case.
  if (job.kind === "stop" || job.kind === "remove" || job.kind === "tidy") return true;
  // Once something may have been stopped, finishing is quicker.
  return wish === "run" && (job.phase === "creating" || hashOf(standing.goal) === job.hash);
}
