import { nameOf } from "./outcome.ts";
import { AgentError } from "../../errors.ts";
import type { Reason } from "../../protocol/documents/reconcile.ts";
import type { Issue, Outcome, Step } from "./section.ts";
import type { SectionResult, Versions } from "./work.ts";
import { defined } from "../../lib/defined.ts";

/** What was found changed by others since the section last converged, and was put back. */
export interface Drift {
  readonly count: number;
  readonly lastAt?: number;
  /** The first steps that put it back the last time, as `kind subject`. */
  readonly what: readonly string[];
}

/** The standing of a section. Times in milliseconds of one clock: the engine measures by the monotonic one and shows wall time. */
export interface Standing {
  readonly section: string;
  readonly outcome: Outcome;
  /** Those rejected come first. */
  readonly issues: readonly Issue[];
  readonly rejected: number;
  /** What is used otherwise than it is written: nothing is wrong with it. */
  readonly notices: readonly Issue[];
  /** Since when each issue and notice is known, by `issueKey`. */
  readonly sinces: ReadonlyMap<string, number>;
  /** What was wrong when the machine was last seen, and for which versions: kept while it cannot be seen. */
  readonly looked?: { readonly version: Versions; readonly issues: readonly Issue[] };
  /** What the section says of itself, free of secrets. */
  readonly reported: Readonly<Record<string, unknown>>;
  /** The versions this answers. */
  readonly version: Versions;
  /** Steps taken since these versions were first tried. */
  readonly steps: number;
  /** Since when the state is what it is; of an issue, `sinces` says it. */
  readonly since: number;
  readonly lastAttempt: number;
  readonly nextAttempt?: number;
  /** Attempts in a row that did not converge. */
  readonly failures: number;
  readonly drift: Drift;
}

/** A standing with every time moved by so many milliseconds. Pure. */
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

/** What the engine knows besides the result. */
export interface Attempt {
  readonly version: Versions;
  readonly now: number;
  /** Whether any difference was made by somebody else. */
  readonly isDrift: boolean;
}

const NO_DRIFT: Drift = { count: 0, what: [] };
const MAX_WHAT = 10;

/** The standing after an attempt; its retry is not decided yet. Pure. */
export function standingAfter(before: Standing | undefined, result: SectionResult, attempt: Attempt): Standing {
  const { outcome, reported = {} } = result;
  // What a pass did not come to judge stays as it was.
  const rejected = result.rejected ?? before?.issues.slice(0, before.rejected) ?? [];
  const notices = result.notices ?? before?.notices ?? [];
  const looked = result.looked === undefined ? before?.looked : { version: attempt.version, issues: result.looked };
  const isStillKnown = looked !== undefined && sameVersions(looked.version, attempt.version);
  const isSame = before !== undefined && stateKey(before.outcome) === stateKey(outcome);
  const isSettled = outcome.state === "converged" || outcome.state === "rejected" || outcome.state === "unsupported";
  const isSameVersion = before !== undefined && sameVersions(before.version, attempt.version);
  return {
    section: result.name,
    outcome,
    issues: [...rejected, ...(isStillKnown ? looked.issues : [])],
    rejected: rejected.length,
    notices,
    sinces: new Map([
      ...sincesToKeep(result.untold ?? [], before?.sinces),
      ...sincesOf([...rejected, ...notices, ...(looked?.issues ?? [])], before?.sinces, attempt.now),
    ]),
    ...defined({ looked }),
    reported,
    version: attempt.version,
    steps: result.steps + (isSameVersion ? before.steps : 0),
    since: isSame ? before.since : attempt.now,
    lastAttempt: attempt.now,
    failures: isSettled ? 0 : (before?.failures ?? 0) + 1,
    drift: driftAfter(before?.drift ?? NO_DRIFT, result.planned, attempt),
  };
}

/** What an issue is known by from one pass to the next: the same words about the same item may vary. */
function issueKey({ path, code }: Pick<Issue, "path" | "code">): string {
  return `${code} ${path}`;
}

/** The times of whatever was known of items that cannot be judged for the moment. */
function sincesToKeep(
  paths: readonly string[],
  before: ReadonlyMap<string, number> = new Map<string, number>(),
): readonly (readonly [string, number])[] {
  const untold = new Set(paths);
  return [...before].filter(([key]) => untold.has(key.slice(key.indexOf(" ") + 1)));
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

/** Whether two sets of versions are the same. */
export function sameVersions(one: Versions, other: Versions): boolean {
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => one[name] === other[name]);
}

/**
 * Names, for everything that is not as it should be, the reason, since when, and the attempts; of each section what is wrong, then the
 * notices. Pure.
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

/** The reason of the section as a whole, unless its items say it all. */
function wholeReason(outcome: Outcome, hasItems: boolean): Pick<Reason, "code" | "message"> | undefined {
  switch (outcome.state) {
    case "converged":
      return undefined;
    case "rejected":
      return hasItems ? undefined : { code: "rejected", message: "nothing of the section could be used" };
    case "failed":
      return outcome.step !== undefined && hasItems
        ? undefined
        : { code: codeOf(outcome.error), message: outcome.error.message };
    case "diverged": {
      const steps = outcome.remaining.slice(0, MAX_WHAT).map(nameOf);
      return { code: "diverged", message: `applied, and still to do: ${steps.join(", ")}` };
    }
    case "pending":
      return hasItems ? undefined : { code: "pending", message: outcome.reason };
    case "unsupported":
      return { code: "unsupported", message: outcome.reason };
  }
}

/** The code of an error; `internal` for one that was not thrown on purpose. */
export function codeOf(error: Error): string {
  return error instanceof AgentError ? error.code : "internal";
}

function stateKey(outcome: Outcome): string {
  switch (outcome.state) {
    case "failed":
      return `failed ${codeOf(outcome.error)}`;
    case "pending": // for what, its items say
    case "converged":
    case "rejected":
    case "diverged":
    case "unsupported":
      return outcome.state;
  }
}
