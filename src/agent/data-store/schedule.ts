/** A transfer that is not over. `held` waits for a time of its own before it may run again. */
export interface Slot {
  readonly id: string;
  /** Targets that only one transfer at a time may write. */
  readonly target: string;
  readonly is: "queued" | "held" | "running";
}

/** In the order in which they came. */
export type Schedule = readonly Slot[];

export interface ScheduleLimits {
  /** That run at a time. */
  readonly maxRunning: number;
  /** That wait besides. */
  readonly maxWaiting: number;
}

/** Why another cannot be taken: too many wait, or that one is at work on the same target. Undefined when it can. Pure. */
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

/** With one more at its end. Pure. */
export function withSlot(schedule: Schedule, slot: Slot): Schedule {
  return [...schedule, slot];
}

/** With one in another standing. Pure. */
export function withStanding(schedule: Schedule, id: string, is: Slot["is"]): Schedule {
  return schedule.map((slot) => (slot.id === id ? { ...slot, is } : slot));
}

/** Without one. Pure. */
export function withoutSlot(schedule: Schedule, id: string): Schedule {
  return schedule.filter((slot) => slot.id !== id);
}
