import { AgentError } from "../../errors.ts";
import type { Reason } from "../../protocol/documents/reconcile.ts";
import { nameOf, type Issue, type Outcome, type Step } from "./section.ts";
import type { SectionResult, Versions } from "./work.ts";
import { defined } from "../../lib/defined.ts";

/** Drift: changes by others since the section last converged, which were reverted. */
export interface Drift {
  readonly count: number;
  readonly lastAt?: number;
  /** First steps of the last correction, as `kind subject`. */
  readonly what: readonly string[];
}

/** State of a section. Times are milliseconds of one clock: the engine uses the monotonic one and shows wall time. */
export interface Standing {
  readonly section: string;
  readonly outcome: Outcome;
  /** Rejected items come first. */
  readonly issues: readonly Issue[];
  readonly rejected: number;
  /** Parts used differently from how they are written; no errors. */
  readonly notices: readonly Issue[];
  /** Time at which each issue and notice was first seen, by `issueKey`. */
  readonly sinces: ReadonlyMap<string, number>;
  /** Issues of the last observation and its versions; kept while the machine cannot be observed. */
  readonly observed?: { readonly version: Versions; readonly issues: readonly Issue[] };
  /** The section's own report, free of secrets. */
  readonly reported: Readonly<Record<string, unknown>>;
  /** Document versions that this state answers. */
  readonly version: Versions;
  /** Steps applied since the first attempt of these versions. */
  readonly steps: number;
  /** Time of the last change of state; `sinces` has the times of issues. */
  readonly since: number;
  readonly lastAttempt: number;
  readonly nextAttempt?: number;
  /** Consecutive attempts that did not converge. */
  readonly failures: number;
  readonly drift: Drift;
}

/** Returns a copy with all times shifted by `ms`. Pure. */
export function movedInTime(standing: Standing, ms: number): Standing {
  const moved = (at: number): number => Math.max(0, Math.round(at + ms));
  const { since, lastAttempt, nextAttempt, sinces, drift } = standing;
  return {
    ...standing,
    since: moved(since),
    lastAttempt: moved(lastAttempt),
    ...(nextAttempt === undefined ? {} : { nextAttempt: moved(nextAttempt) }),
    sinces: new Map([...sinces].map(([key, at]) => [key, moved(at)])),
    drift: { ...drift, ...(drift.lastAt === undefined ? {} : { lastAt: moved(drift.lastAt) }) },
  };
}

/** Context of a result. */
export interface Attempt {
  readonly version: Versions;
  readonly now: number;
  /** True if any difference is somebody else's change. */
  readonly isDrift: boolean;
}

const NO_DRIFT: Drift = { count: 0, what: [] };
const MAX_WHAT = 10;

/** Returns the state after an attempt, before its retry is scheduled. Pure. */
export function standingAfter(before: Standing | undefined, result: SectionResult, attempt: Attempt): Standing {
  const { outcome, reported = {} } = result;
  // Values that the pass did not evaluate stay.
  const rejected = result.rejected ?? before?.issues.slice(0, before.rejected) ?? [];
  const notices = result.notices ?? before?.notices ?? [];
  const observed =
    result.observed === undefined ? before?.observed : { version: attempt.version, issues: result.observed };
  const isStillKnown = observed !== undefined && sameVersions(observed.version, attempt.version);
  const isSame = before !== undefined && stateKey(before.outcome) === stateKey(outcome);
  const isSettled = outcome.state === "converged" || outcome.state === "rejected" || outcome.state === "unsupported";
  const isSameVersion = before !== undefined && sameVersions(before.version, attempt.version);
  return {
    section: result.name,
    outcome,
    issues: [...rejected, ...(isStillKnown ? observed.issues : [])],
    rejected: rejected.length,
    notices,
    sinces: new Map([
      ...sincesToKeep(result.undetermined ?? [], before?.sinces),
      ...sincesOf([...rejected, ...notices, ...(observed?.issues ?? [])], before?.sinces, attempt.now),
    ]),
    ...defined({ observed }),
    reported,
    version: attempt.version,
    steps: result.steps + (isSameVersion ? before.steps : 0),
    since: isSame ? before.since : attempt.now,
    lastAttempt: attempt.now,
    failures: isSettled ? 0 : (before?.failures ?? 0) + 1,
    drift: driftAfter(before?.drift ?? NO_DRIFT, result.planned, attempt),
  };
}

/** Returns an issue's identity across passes; its text may vary. */
function issueKey({ path, code }: Pick<Issue, "path" | "code">): string {
  return `${code} ${path}`;
}

/** Returns the times of issues whose items cannot be evaluated now. */
function sincesToKeep(
  paths: readonly string[],
  before: ReadonlyMap<string, number> = new Map<string, number>(),
): readonly (readonly [string, number])[] {
  const undetermined = new Set(paths);
  return [...before].filter(([key]) => undetermined.has(key.slice(key.indexOf(" ") + 1)));
}

function sincesOf(
  issues: readonly Issue[],
  before: ReadonlyMap<string, number> | undefined,
  now: number,
): ReadonlyMap<string, number> {
  return new Map(issues.map(issueKey).map((key) => [key, before?.get(key) ?? now]));
}

function driftAfter(before: Drift, planned: readonly Step[], { isDrift, now }: Attempt): Drift {
  if (!isDrift || planned.length === 0) return before;
  const what = planned.slice(0, MAX_WHAT).map(nameOf);
  return { count: before.count + 1, lastAt: now, what };
}

/** Reports whether two sets of versions are equal. */
export function sameVersions(one: Versions, other: Versions): boolean {
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => one[name] === other[name]);
}

/**
 * Returns the reason, start time and attempts of everything that is not as desired: per section its issues, then its notices. Pure.
 */
export function whyOf(standings: readonly Standing[]): Reason[] {
  return standings.flatMap((standing) => {
    const { section, outcome, issues, notices, since, sinces, lastAttempt, nextAttempt } = standing;
    const times = { lastAttempt, ...defined({ nextAttempt }) };
    const reasonOf = (issue: Issue, rest: Pick<Reason, "notice">): Reason => {
      const { path, code, message } = issue;
      return { section, item: path, code, message, since: sinces.get(issueKey(issue)) ?? since, ...times, ...rest };
    };
    const items = [
      ...issues.map((issue) => reasonOf(issue, {})),
      ...notices.map((notice) => reasonOf(notice, { notice: true })),
    ];
    const whole = wholeReason(outcome, issues.length > 0);
    return whole === undefined ? items : [{ section, ...whole, since, ...times }, ...items];
  });
}

/** Returns the reason of the section as a whole, unless its items cover it. */
function wholeReason(outcome: Outcome, hasItems: boolean): Pick<Reason, "code" | "message"> | undefined {
  switch (outcome.state) {
    case "converged":
      return undefined;
    case "rejected":
      return hasItems ? undefined : { code: "rejected", message: "no part of the section could be used" };
    case "failed":
      return outcome.step !== undefined && hasItems
        ? undefined
        : { code: codeOf(outcome.error), message: outcome.error.message };
    case "diverged": {
      const steps = outcome.remaining.slice(0, MAX_WHAT).map(nameOf);
      return { code: "diverged", message: `applied, but these steps remain: ${steps.join(", ")}` };
    }
    case "pending":
      return hasItems ? undefined : { code: "pending", message: outcome.reason };
    case "unsupported":
      return { code: "unsupported", message: outcome.reason };
  }
}

/** Returns an error's code; `internal` for an unexpected error. */
export function codeOf(error: Error): string {
  return error instanceof AgentError ? error.code : "internal";
}

function stateKey(outcome: Outcome): string {
  switch (outcome.state) {
    case "failed":
      return `failed ${codeOf(outcome.error)}`;
    case "pending": // its items name the cause
    case "converged":
    case "rejected":
    case "diverged":
    case "unsupported":
      return outcome.state;
  }
}
