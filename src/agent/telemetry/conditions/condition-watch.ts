import type { Clock } from "../../../host/clock.ts";
import { keyOf, type Clearing, type EventInput, type EventLog, type OpenEvent } from "../events.ts";
import { defined } from "../../../lib/defined.ts";

/** A condition that holds while it is listed, and the message and level (INFO by default) at its end. */
export interface Condition extends EventInput {
  readonly over: string;
  readonly overLevel?: EventInput["level"];
}

/** A reported condition that ended. Times are monotonic milliseconds. */
export interface EndedCondition {
  readonly condition: Condition;
  readonly since: number;
  readonly endedAt: number;
  /** True if its subject no longer exists. */
  readonly isGone: boolean;
}

export interface ConditionWatchOptions {
  readonly clock: Clock;
  readonly events: Pick<EventLog, "raise" | "clear" | "openEvents">;
  /** Lists the current conditions. */
  readonly read: (now: number) => readonly Condition[];
  /** Returns the condition of an event from before the start, if this watch owns it and its subject is known; else undefined. */
  readonly adopt: (open: OpenEvent) => Condition | undefined;
  /** Time for which a condition must hold until it is raised; 5 s by default. */
  readonly holdMs?: number;
  /** Time for which it must be absent until it is cleared; 5 s by default. One that returns before continues. */
  readonly clearMs?: number;
  /** Reports whether the subject of a condition no longer exists, which clears it at once. */
  readonly isGone?: (condition: Condition) => boolean;
  /** Reports whether the end of a condition cannot be judged yet; asked during the quiet minute only. */
  readonly isPremature?: (condition: Condition) => boolean;
  readonly clearing?: (ended: EndedCondition) => Pick<Clearing, "level" | "message" | "details">;
}

export interface ConditionWatch {
  /** Re-evaluates the conditions. */
  readonly refresh: () => void;
  /** Time before which nothing is raised: links, names and tunnels come up one after the other. Monotonic milliseconds. */
  readonly quietUntil: number;
  readonly close: () => void;
}

interface Seen {
  readonly condition: Condition;
  readonly since: number;
  /** Time since which it is absent. */
  readonly endedAt?: number;
  readonly isRaised: boolean;
}

type Conditions = ReadonlyMap<string, Seen>;

interface ConditionStep {
  readonly conditions: Conditions;
  readonly raised: readonly Condition[];
  readonly ended: readonly EndedCondition[];
  /** Times at which something changes without a new reading. */
  readonly due: readonly number[];
}

const STABLE_MS = 5000;
const QUIET_AFTER_START_MS = 60_000;

interface Rules {
  readonly quietUntil: number;
  readonly holdMs: number;
  readonly clearMs: number;
  readonly isGone: (condition: Condition) => boolean;
  readonly isPremature: (condition: Condition) => boolean;
}

/** Decides which conditions began and ended. Pure; times are monotonic milliseconds. */
function nextConditions(before: Conditions, current: readonly Condition[], now: number, rules: Rules): ConditionStep {
  const conditions = new Map<string, Seen>();
  const [raised, ended, due]: [Condition[], EndedCondition[], number[]] = [[], [], []];
  const listed = new Map(current.map((condition) => [keyOf(condition), condition]));
  for (const [key, condition] of listed) {
    const { since = now, isRaised = false } = before.get(key) ?? {};
    const raiseAt = Math.max(since + rules.holdMs, rules.quietUntil);
    if (!isRaised && now >= raiseAt) raised.push(condition);
    if (now < raiseAt && !isRaised) due.push(raiseAt);
    conditions.set(key, { condition, since, isRaised: isRaised || now >= raiseAt });
  }
  for (const [key, seen] of before) {
    const { condition, since, endedAt = now, isRaised } = seen;
    if (listed.has(key) || !isRaised) continue;
    const clearAt = endedAt + rules.clearMs;
    if (now < rules.quietUntil && rules.isPremature(condition)) {
      due.push(rules.quietUntil);
      conditions.set(key, seen);
    } else if (now >= clearAt || rules.isGone(condition)) {
      ended.push({ condition, since, endedAt, isGone: rules.isGone(condition) });
    } else {
      due.push(clearAt);
      conditions.set(key, { ...seen, endedAt });
    }
  }
  return { conditions, raised, ended, due };
}

/** Raises and clears the events of conditions, re-evaluated on each change. */
export function watchConditions(options: ConditionWatchOptions): ConditionWatch {
  const { clock, events, read, adopt } = options;
  const {
    clearing = ({ condition: { over, overLevel, details } }) => ({
      message: over,
      ...defined({ level: overLevel, details }),
    }),
  } = options;
  const { holdMs = STABLE_MS, clearMs = STABLE_MS, isGone = () => false, isPremature = () => false } = options;
  const quietUntil = clock.elapsed() + QUIET_AFTER_START_MS;
  const rules = { quietUntil, holdMs, clearMs, isGone, isPremature };
  let conditions: Conditions = new Map();
  let cancel: (() => void) | undefined;
  let isClosed = false;

  /** Takes over events that an earlier run raised. */
  function adoptOpen(): void {
    const adopted = events.openEvents().flatMap((open): readonly [string, Seen][] => {
      const condition = conditions.has(keyOf(open)) ? undefined : adopt(open);
      return condition === undefined ? [] : [[keyOf(open), { condition, since: clock.elapsed(), isRaised: true }]];
    });
    conditions = new Map([...conditions, ...adopted]);
  }

  function refresh(): void {
    if (isClosed) return;
    cancel?.();
    const now = clock.elapsed();
    const current = read(now);
    adoptOpen();
    const { due, raised, ended, ...step } = nextConditions(conditions, current, now, rules);
    conditions = step.conditions;
    for (const { eventType, object, level, message, details } of raised) {
      events.raise({ eventType, object, level, message, ...defined({ details }) });
    }
    for (const one of ended) {
      const { eventType, object } = one.condition;
      events.clear({ eventType, object, ...clearing(one) });
    }
    cancel = due.length === 0 ? undefined : clock.after(Math.max(1, Math.ceil(Math.min(...due) - now)), refresh);
  }

  return {
    refresh,
    quietUntil,
    close() {
      isClosed = true;
      cancel?.();
    },
  };
}
