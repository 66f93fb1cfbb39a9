import type { Clock } from "../../../host/clock.ts";
import type { EventInput, EventLog, OpenEvent } from "../events.ts";
import { defined } from "../../../lib/defined.ts";

/** A condition that holds while it is listed, and the message at its end. */
export interface Condition extends EventInput {
  readonly over: string;
}

interface Seen {
  readonly condition: Condition;
  /** Monotonic milliseconds since which it is present, or absent. */
  readonly since: number;
  readonly isThere: boolean;
  readonly isRaised: boolean;
}

export type Conditions = ReadonlyMap<string, Seen>;

export interface ConditionStep {
  readonly conditions: Conditions;
  readonly raised: readonly Condition[];
  readonly cleared: readonly Condition[];
  /** Milliseconds until the next evaluation without a change. */
  readonly waitMs: number | undefined;
}

const STABLE_MS = 5000;
const QUIET_AFTER_START_MS = 60_000;

/**
 * Decides which conditions began and ended: after 5 s without change, and never before `quietUntil`. Pure; times are monotonic
 * milliseconds.
 */
function nextConditions(
  before: Conditions,
  current: readonly Condition[],
  now: number,
  quietUntil: number,
): ConditionStep {
  const named = new Map(current.map((condition) => [keyOf(condition), condition]));
  const conditions = new Map<string, Seen>();
  const [raised, cleared, waits]: [Condition[], Condition[], number[]] = [[], [], []];
  for (const key of new Set([...before.keys(), ...named.keys()])) {
    const last = before.get(key);
    const condition = named.get(key) ?? last?.condition;
    if (condition === undefined) continue;
    const isThere = named.has(key);
    const isRaised = last?.isRaised ?? false;
    const since = last !== undefined && last.isThere === isThere ? last.since : now;
    const due = Math.max(since + STABLE_MS, isThere ? quietUntil : 0);
    if (isThere === isRaised) {
      if (isThere) conditions.set(key, { condition, since, isThere, isRaised });
      continue;
    }
    if (now < due) {
      waits.push(due - now);
      conditions.set(key, { condition, since, isThere, isRaised });
      continue;
    }
    (isThere ? raised : cleared).push(condition);
    if (isThere) conditions.set(key, { condition, since, isThere, isRaised: true });
  }
  return { conditions, raised, cleared, waitMs: waits.length === 0 ? undefined : Math.min(...waits) };
}

export interface ConditionWatchOptions {
  readonly clock: Clock;
  readonly events: EventLog;
  /** Returns the current conditions. */
  readonly read: () => readonly Condition[];
  /** Returns the message that clears an event open from before the start, if this watch owns it; else undefined. */
  readonly adopt: (open: OpenEvent) => string | undefined;
}

/** Raises and clears the events of conditions, re-evaluated on each change. */
export function watchConditions({ clock, events, read, adopt }: ConditionWatchOptions): {
  refresh(): void;
  close(): void;
} {
  const quietUntil = clock.elapsed() + QUIET_AFTER_START_MS;
  let conditions: Conditions = new Map(
    events.openEvents().flatMap((open) => {
      const over = adopt(open);
      if (over === undefined) return [];
      return [[keyOf(open), { condition: { ...open, over }, since: clock.elapsed(), isThere: true, isRaised: true }]];
    }),
  );
  let cancel: (() => void) | undefined;
  let isClosed = false;
  const refresh = (): void => {
    if (isClosed) return;
    cancel?.();
    const step = nextConditions(conditions, read(), clock.elapsed(), quietUntil);
    conditions = step.conditions;
    for (const { eventType, object, level, message, details } of step.raised) {
      events.raise({ eventType, object, level, message, ...defined({ details }) });
    }
    for (const { eventType, object, details, over } of step.cleared) {
      events.clear({ eventType, object, message: over, ...defined({ details }) });
    }
    cancel = step.waitMs === undefined ? undefined : clock.after(Math.max(1, Math.ceil(step.waitMs)), refresh);
  };
  return {
    refresh,
    close() {
      isClosed = true;
      cancel?.();
    },
  };
}

function keyOf({ eventType, object }: { readonly eventType: string; readonly object: string }): string {
  return `${eventType}\0${object}`;
}
