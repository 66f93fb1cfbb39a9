/** An unfinished transfer. `held` waits for its retry time. */
export interface Slot {
  readonly id: string;
  /** Targets that only one transfer at a time may write. */
  readonly target: string;
  readonly is: "queued" | "held" | "running";
}

/** Transfers in order of arrival. */
export type Schedule = readonly Slot[];

export interface ScheduleLimits {
  /** Maximum number of running transfers. */
  readonly maxRunning: number;
  /** Maximum number of waiting transfers. */
  readonly maxWaiting: number;
}

/** Returns why another transfer is refused: the queue is full, or its target is in use. Undefined if it is accepted. Pure. */
export function refusalOf(
  schedule: Schedule,
  target: string,
  limits: ScheduleLimits,
): { readonly full: number } | { readonly taken: string } | undefined {
  const holder = schedule.find((slot) => slot.target === target);
  if (holder !== undefined) return { taken: holder.id };
  const room = limits.maxRunning + limits.maxWaiting;
  return schedule.length >= room ? { full: limits.maxWaiting } : undefined;
}

/** Returns the tasks that may start now, in order of arrival. Pure. */
export function dueOf(schedule: Schedule, { maxRunning }: Pick<ScheduleLimits, "maxRunning">): readonly string[] {
  const free = maxRunning - schedule.filter(({ is }) => is === "running").length;
  return schedule
    .filter(({ is }) => is === "queued")
    .slice(0, Math.max(0, free))
    .map(({ id }) => id);
}

/** Returns the queue with one more at its end. Pure. */
export function withSlot(schedule: Schedule, slot: Slot): Schedule {
  return [...schedule, slot];
}

/** Returns the queue with one transfer in another state. Pure. */
export function withStanding(schedule: Schedule, id: string, is: Slot["is"]): Schedule {
  return schedule.map((slot) => (slot.id === id ? { ...slot, is } : slot));
}

/** Returns the queue without one transfer. Pure. */
export function withoutSlot(schedule: Schedule, id: string): Schedule {
  return schedule.filter((slot) => slot.id !== id);
}
