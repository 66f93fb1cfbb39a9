import type { Clock } from "../../../host/clock.ts";
import type { EventInput, EventLog, OpenEvent } from "../events.ts";
import { defined } from "../../../lib/defined.ts";

/** Something that holds on the machine for as long as it is named, and what is said when it is over. */
export interface Condition extends EventInput {
  readonly over: string;
}

interface Seen {
  readonly condition: Condition;
  /** Monotonic milliseconds since when it is there, or gone. */
  readonly since: number;
  readonly isThere: boolean;
  readonly isRaised: boolean;
}

export type Conditions = ReadonlyMap<string, Seen>;

export interface ConditionStep {
  readonly conditions: Conditions;
  readonly raised: readonly Condition[];
  readonly cleared: readonly Condition[];
  /** When to look again without any change, in milliseconds. */
  readonly waitMs: number | undefined;
}

const STABLE_MS = 5000;
const QUIET_AFTER_START_MS = 60_000;

/**
 * Decides what began and what ended: each counts when it held for 5 s, and begins only after `quietUntil`. Pure; times are monotonic
 * milliseconds.
 */
export function nextConditions(
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
  /** What holds at this moment. */
  readonly read: () => readonly Condition[];
  /** Those open from before the start that are this watch's to clear, with what is then said; undefined for others. */
  readonly adopt: (open: OpenEvent) => string | undefined;
}

/** Raises and clears the events of conditions, looking when told that they may have changed. */
export function watchConditions({ clock, events, read, adopt }: ConditionWatchOptions): {
  look(): void;
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
  const look = (): void => {
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
    cancel = step.waitMs === undefined ? undefined : clock.after(Math.max(1, Math.ceil(step.waitMs)), look);
  };
  return {
    look,
    close() {
      isClosed = true;
      cancel?.();
    },
  };
}

function keyOf({ eventType, object }: { readonly eventType: string; readonly object: string }): string {
  return `${eventType}\0${object}`;
}
