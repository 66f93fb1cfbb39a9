import type { Entry } from "../../checkpoint/checkpoint.ts";
import type { PlannedStep, Prepared, Reconciler, Step, View } from "./section.ts";
import { defined } from "../../lib/defined.ts";

/** A section at work. */
export interface Candidate {
  readonly section: Reconciler;
  readonly prepared: Prepared;
  /** As of the last look. */
  view: View;
  readonly failures: Failure[];
  /** What was to be done, before it was begun, and not only because the surroundings changed. */
  readonly planned: Step[];
  steps: number;
  /** What was still to be done when it had its last turn, by kind and subject. */
  left?: ReadonlySet<string>;
  /** It has its result, and no further turn. */
  isOver: boolean;
}

/** A section's turn: to take away what nobody needs any more, and then to do the others, or all at once. */
export interface Turn {
  readonly candidate: Candidate;
  readonly what: "removals" | "others" | "all";
}

/** How a turn ended. */
export type TurnEnd = "through" | "stale" | "guard-failed" | "not-stored";

/** A step that failed, and why. */
export interface Failure {
  readonly step: Step;
  readonly error: Error;
}

/** A step and whose it is. */
export interface Due {
  readonly section: string;
  readonly planned: PlannedStep;
}

/**
 * Removals from the last section to the first, then everything from the first to the last. A section that is alone in having something to
 * do keeps its steps together, since nobody needs what it takes away.
 */
export function turnsOf(candidates: readonly Candidate[]): readonly Turn[] {
  const busy = candidates.filter(({ view }) => view.steps.length > 0);
  const removing = busy.length < 2 ? [] : busy.filter(({ view }) => view.steps.some(isRemoval)).reverse();
  return [
    ...removing.map((candidate) => ({ candidate, what: "removals" }) as const),
    ...candidates.map((candidate) => ({ candidate, what: removing.includes(candidate) ? "others" : "all" }) as const),
  ];
}

/** Whether a step only takes away. */
export function isRemoval({ step }: PlannedStep): boolean {
  return step.removes === true;
}

/** The steps that a turn to come will have, as far as can be told. */
export function expected({ candidate: { section, view, isOver }, what }: Turn): readonly Due[] {
  if (isOver) return [];
  const steps = what === "all" ? view.steps : view.steps.filter((one) => isRemoval(one) === (what === "removals"));
  return steps.map((planned) => ({ section: section.name, planned }));
}

/** What is stored of a step to take it back. */
export function entryOf({ section, planned }: Due): Entry {
  return { section, undo: planned.undo() };
}

/** Whether two lists hold the very same steps. */
export function isSame(one: readonly Due[], other: readonly Due[]): boolean {
  return one.length === other.length && one.every(({ planned }, index) => planned === other[index]?.planned);
}

/** What comes up again after a removal that failed is not another difference. */
export function notePlanned({ planned }: Candidate, steps: readonly PlannedStep[]): void {
  const known = new Set(planned.map(({ kind, subject }) => `${kind} ${subject}`));
  const own = steps.filter(({ isFollowing }) => !isFollowing);
  planned.push(...own.map(({ step }) => shown(step)).filter(({ kind, subject }) => !known.has(`${kind} ${subject}`)));
}

/** A step without whatever else it carries, which may be secret. */
export function shown({ kind, subject, name, guarded }: Step): Step {
  return { kind, subject, guarded, ...defined({ name }) };
}
