import type { Restored } from "../../checkpoint/checkpoint.ts";
import type { Issue, Outcome, Reconciler, Step } from "./section.ts";

/** A section and its raw desired value; undefined removes everything that it created. */
export interface Work {
  readonly section: Reconciler;
  readonly raw: unknown;
}

export interface SectionResult {
  readonly name: string;
  readonly outcome: Outcome;
  /** Rejected items; absent if the section could not be parsed. */
  readonly rejected?: readonly Issue[];
  /** Parts used differently from how they are written; absent like `rejected`. */
  readonly notices?: readonly Issue[];
  /** Items that wait or whose step failed; absent without a final observation. */
  readonly observed?: readonly Issue[];
  /** Paths of items whose state is unknown. */
  readonly undetermined?: readonly string[];
  /** Steps planned before the first one ran, without those that only follow changed surroundings. */
  readonly planned: readonly Step[];
  /** Number of applied steps. */
  readonly steps: number;
  /** The section's own report; absent without an observation. */
  readonly reported?: Readonly<Record<string, unknown>>;
}

/** A failed step and its error. */
export interface Failure {
  readonly step: Step;
  readonly error: Error;
}

/** Result of a pass. If `stale` or `restored`, sections without a result are undecided; after a rollback the results are the failed ones. */
export interface PassResult {
  readonly end: "done" | "stale" | "restored";
  readonly results: readonly SectionResult[];
  readonly restored?: Restored;
  /** Reason why an applied pass was rolled back. */
  readonly evidence?: string;
}

/** Versions of the documents behind a desired state, by name. */
export type Versions = Readonly<Record<string, number>>;

/** Desired values by section name; null for an absent section. */
export type Guards = Readonly<Record<string, unknown>>;

/** Reports whether two values are equal; an absent section is null. Members have the document's order. */
export function isSameValue(one: unknown, other: unknown): boolean {
  return JSON.stringify(one ?? null) === JSON.stringify(other ?? null);
}
