import type { Restored } from "../../checkpoint/checkpoint.ts";
import type { Issue, Outcome, Reconciler, Step } from "./section.ts";

/** One section and its raw desired value; undefined takes away what it has made. */
export interface Work {
  readonly section: Reconciler;
  readonly raw: unknown;
}

export interface SectionResult {
  readonly name: string;
  readonly outcome: Outcome;
  /** Items that were rejected; absent when the section could not even be parsed. */
  readonly rejected?: readonly Issue[];
  /** What is used otherwise than written; absent as `rejected` is. */
  readonly notices?: readonly Issue[];
  /** Items that wait or whose step failed; absent when nothing was seen in the end. */
  readonly looked?: readonly Issue[];
  /** Paths of items of which it could not be told whether they work. */
  readonly untold?: readonly string[];
  /** What differed from the desired state before the first step, and not only because the surroundings changed. */
  readonly planned: readonly Step[];
  /** Steps that were carried out. */
  readonly steps: number;
  /** What the section says of itself; absent when nothing was seen. */
  readonly reported?: Readonly<Record<string, unknown>>;
}

/** How a pass ended; one that is `stale` or `restored` says nothing of sections without a result. */
export interface PassResult {
  readonly end: "done" | "stale" | "restored";
  readonly results: readonly SectionResult[];
  readonly restored?: Restored;
  /** Why a pass that was applied is taken back. */
  readonly evidence?: string;
}

/** The versions of the documents that a desired state was made of. */
export type Versions = Readonly<Record<string, number>>;
