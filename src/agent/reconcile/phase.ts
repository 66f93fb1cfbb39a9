import type { Entry } from "../../checkpoint/checkpoint.ts";
import type { PlannedStep, Prepared, Reconciler, Step, View } from "./section.ts";
import { defined } from "../../lib/defined.ts";

/** A section during a pass. */
export interface Candidate {
  readonly section: Reconciler;
  readonly prepared: Prepared;
  /** Last observation and plan. */
  view: View;
  readonly failures: Failure[];
  /** Steps planned before the first one ran, without those that only follow changed surroundings. */
  readonly planned: Step[];
  steps: number;
  /** Steps left when its last phase began, by kind and subject. */
  left?: ReadonlySet<string>;
  /** True once it has its result and gets no further phase. */
  isOver: boolean;
}

/** A phase of a section: its removals, its other steps, or all steps. */
export interface Phase {
  readonly candidate: Candidate;
  readonly what: "removals" | "others" | "all";
}

/** Result of a phase. */
export type PhaseEnd = "through" | "stale" | "guard-failed" | "not-stored";

/** A failed step and its error. */
export interface Failure {
  readonly step: Step;
  readonly error: Error;
}

/** A step and its section. */
export interface Due {
  readonly section: string;
  readonly planned: PlannedStep;
}

/**
 * Returns the phases of a pass: removals from the last section to the first, then all other steps from the first to the last. If only
 * one section has steps, they stay together, since no other section depends on what it removes.
 */
export function phasesOf(candidates: readonly Candidate[]): readonly Phase[] {
  const busy = candidates.filter(({ view }) => view.steps.length > 0);
  const removing = busy.length < 2 ? [] : busy.filter(({ view }) => view.steps.some(isRemoval)).reverse();
  return [
    ...removing.map((candidate) => ({ candidate, what: "removals" }) as const),
    ...candidates.map((candidate) => ({ candidate, what: removing.includes(candidate) ? "others" : "all" }) as const),
  ];
}

/** Reports whether a step only removes. */
export function isRemoval({ step }: PlannedStep): boolean {
  return step.removes === true;
}

/** Returns the expected steps of a later phase. */
export function expected({ candidate: { section, view, isOver }, what }: Phase): readonly Due[] {
  if (isOver) return [];
  const steps = what === "all" ? view.steps : view.steps.filter((one) => isRemoval(one) === (what === "removals"));
  return steps.map((planned) => ({ section: section.name, planned }));
}

/** Returns the stored undo of a step. */
export function entryOf({ section, planned }: Due): Entry {
  return { section, undo: planned.undo() };
}

/** Reports whether two lists hold the same step objects. */
export function isSame(one: readonly Due[], other: readonly Due[]): boolean {
  return one.length === other.length && one.every(({ planned }, index) => planned === other[index]?.planned);
}

/** Records planned steps; a step that reappears after a failed removal counts once. */
export function notePlanned({ planned }: Candidate, steps: readonly PlannedStep[]): void {
  const known = new Set(planned.map(({ kind, subject }) => `${kind} ${subject}`));
  const own = steps.filter(({ isFollowing }) => !isFollowing);
  planned.push(...own.map(({ step }) => shown(step)).filter(({ kind, subject }) => !known.has(`${kind} ${subject}`)));
}

/** Returns a step without its other fields, which may be secret. */
export function shown({ kind, subject, name, guarded }: Step): Step {
  return { kind, subject, guarded, ...defined({ name }) };
}
