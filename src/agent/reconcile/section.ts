import type { z } from "zod";
import { InternalError } from "../../errors.ts";
import type { Issue } from "../../protocol/documents/reconcile.ts";
import { defined } from "../../lib/defined.ts";

export type { Issue } from "../../protocol/documents/reconcile.ts";

export interface Section<Desired, Actual, S extends Step> {
  readonly name: string;
  /** Whether it gets an empty desired while the node is INACTIVE; absent means no. */
  readonly needsDataPlane?: boolean;
  /** Longest time one `observe` or one `apply` may take; 30 s when absent. */
  readonly deadlineMs?: number;
  /** Reads a stored undo back. Needed by every section with a guarded step; without it no step of the section is stored. */
  readonly stored?: z.ZodType<S>;
  /**
   * Splits the raw section (undefined: not in the document) into a typed value and the items that cannot be; nothing after it checks
   * shapes. Pure: the same value is parsed once.
   */
  parse(raw: unknown): Parsed<Desired>;
  /** Why this node does not carry out the section at all, asked while it is desired; then the machine is not even looked at. */
  unsupported?(): string | undefined;
  /** Reads what the agent has on the machine now, and for what is desired if that matters. Changes nothing. */
  observe(signal: AbortSignal, desired?: Desired): Promise<Actual>;
  /** Lists the steps from actual to desired, in order. Pure; empty means converged. */
  plan(desired: Desired, actual: Actual): readonly S[];
  /**
   * What would be observed if all that the section depends on but does not make (the addresses of a link) were as it was `before`. What
   * is to be done only because that changed is nobody's tampering; absent, every difference is. Pure.
   */
  asSurrounded?(actual: Actual, before: Actual): Actual;
  /** Says on one line what a step is about, what changes and whether flows end; free of secrets. Only for people. Pure. */
  describe?(step: S, actual: Actual): string;
  /** Names the step that takes this one back, stored before it is applied. Pure. */
  undo(step: S, actual: Actual): S | undefined;
  /** Carries out one step; safe to repeat after a crash. */
  apply(step: S, signal: AbortSignal): Promise<void>;
  /** Carries out steps, none of them guarded, at one blow; for an engine that takes all or nothing. */
  applyAll?(steps: readonly S[], signal: AbortSignal): Promise<void>;
  /**
   * Picks what to report, free of secrets and small: it reaches the shadow as `config.<section>.reported.<key>`, or as it is when the
   * platform knows the key.
   */
  report(actual: Actual): Readonly<Record<string, unknown>>;
  /** What keeps single items from working although the plan is empty (a port that is taken); makes the outcome `pending`. Pure. */
  waits?(desired: Desired, actual: Actual): readonly Issue[];
  /** What of the machine, not being ours to change, keeps what is in force from working as one would think. Pure. */
  notices?(desired: Desired, actual: Actual): readonly Issue[];
  /**
   * What has yet to come about before a change can prove itself, since something of what was there before is held until then (a lease on
   * the way to the control plane). Pure.
   */
  unproven?(desired: Desired, actual: Actual): readonly Issue[];
  /** Paths of items of which it cannot be told yet whether they work; if what was wrong with them still is, it is no news. Pure. */
  untold?(desired: Desired, actual: Actual): readonly string[];
}

export interface Parsed<Desired> {
  readonly desired: Desired;
  /** What is left out, or whose wish cannot be met at all. */
  readonly rejected: readonly Issue[];
  /** What is used, yet not quite as it is written: a part that is ignored or read otherwise. Asks nothing of anybody. */
  readonly notices?: readonly Issue[];
  /** Nothing of the section could be used: the machine stays as it is, and the outcome is `rejected`. */
  readonly isUnusable?: boolean;
}

export interface Step {
  readonly kind: string; // the operation
  readonly subject: string; // what it acts on
  /** The subject as people know it, if that is not `subject`. */
  readonly name?: string;
  readonly guarded: boolean; // could it cut the node off?
  /** It only takes away, and may go ahead of every other step of its section: the pass removes before it makes. */
  readonly removes?: boolean;
}

export type Outcome =
  | { readonly state: "converged" }
  | { readonly state: "rejected"; readonly issues: readonly Issue[] } // nothing of it could be used
  | { readonly state: "failed"; readonly step?: Step; readonly error: Error } // retried with backoff
  | { readonly state: "diverged"; readonly remaining: readonly Step[] } // applied, yet still off target
  | { readonly state: "pending"; readonly reason: string } // waits for something named
  | { readonly state: "unsupported"; readonly reason: string };

/** A section whose types are closed over, so that the engine needs none of them. */
export interface Reconciler {
  readonly name: string;
  readonly needsDataPlane: boolean;
  readonly deadlineMs: number;
  /** Whether it may have steps that could cut the node off. */
  readonly canCutOff: boolean;
  /** Parses once; what comes back plans for this desired state as often as it is asked. */
  prepare(raw: unknown): Prepared;
  /** Carries out a stored undo. */
  applyStored(step: unknown, signal: AbortSignal): Promise<void>;
}

/** A parsed section. */
export interface Prepared {
  readonly rejected: readonly Issue[];
  readonly notices: readonly Issue[];
  readonly isUnusable: boolean;
  /** Why this node does not carry it out. */
  readonly unsupported?: string;
  /** Observes and plans. */
  look(signal: AbortSignal): Promise<View>;
}

/** What the machine has and what remains to be done. */
export interface View {
  readonly steps: readonly PlannedStep[];
  /** Applies some of the steps at one blow, where the section can. */
  readonly applyAll?: (steps: readonly PlannedStep[], signal: AbortSignal) => Promise<void>;
  readonly waits: readonly Issue[];
  readonly notices: readonly Issue[];
  readonly unproven: readonly Issue[];
  readonly untold: readonly string[];
  /** Notes that the desired state is reached, in the surroundings that were seen. */
  readonly reached: () => void;
  readonly reported: () => Readonly<Record<string, unknown>>;
}

/** One step, ready to be applied, and what is stored to take it back; null where there is no way back. */
export interface PlannedStep {
  readonly step: Step;
  /** It only follows surroundings that changed since the desired state was reached; nobody changed what the section made. */
  readonly isFollowing: boolean;
  readonly undo: () => unknown;
  readonly describe: () => string | undefined;
  readonly apply: (signal: AbortSignal) => Promise<void>;
}

const DEADLINE_MS = 30_000;

/** Wraps a section for the engine. */
export function reconciler<Desired, Actual, S extends Step>(section: Section<Desired, Actual, S>): Reconciler {
  const { name, stored } = section;
  const undoOf = (step: S, actual: Actual): unknown => {
    if (stored !== undefined) return section.undo(step, actual) ?? null;
    if (!step.guarded) return null;
    throw new InternalError("internal", `${name}: ${step.kind} is guarded, and the section cannot read its undo back`);
  };
  let settled: Actual | undefined;
  /** The subjects of steps that would be due in the surroundings of then; undefined when that is unknown. */
  const dueAsOf = (before: Actual | undefined, desired: Desired, actual: Actual): ReadonlySet<string> | undefined => {
    if (section.asSurrounded === undefined || before === undefined) return undefined;
    const steps = section.plan(desired, section.asSurrounded(actual, before));
    return new Set(steps.map(({ subject }) => subject));
  };
  let last: { readonly raw: unknown; readonly parsed: Parsed<Desired> } | undefined;
  const parse = (raw: unknown): Parsed<Desired> => {
    if (last === undefined || last.raw !== raw) last = { raw, parsed: section.parse(raw) };
    return last.parsed;
  };
  return {
    name,
    needsDataPlane: section.needsDataPlane ?? false,
    deadlineMs: section.deadlineMs ?? DEADLINE_MS,
    canCutOff: stored !== undefined,
    prepare(raw) {
      const { desired, rejected, notices = [], isUnusable = false } = parse(raw);
      const unsupported = section.unsupported?.();
      let seen: Actual | undefined;
      return {
        rejected,
        notices,
        isUnusable,
        ...defined({ unsupported }),
        async look(signal) {
          const actual = await section.observe(signal, desired);
          const typed = new Map<PlannedStep, S>();
          const planned = section.plan(desired, actual);
          const pasts = planned.length === 0 ? [] : [settled, seen].map((past) => dueAsOf(past, desired, actual));
          seen = actual;
          for (const step of planned) {
            const undo = (): unknown => undoOf(step, actual);
            const isFollowing = pasts.some((due) => due?.has(step.subject) === false);
            const describe = (): string | undefined => section.describe?.(step, actual);
            typed.set({ step, isFollowing, undo, describe, apply: (signal) => section.apply(step, signal) }, step);
          }
          const applyAll: View["applyAll"] = (chosen, signal) =>
            section.applyAll?.(
              chosen.flatMap((step) => typed.get(step) ?? []),
              signal,
            ) ?? Promise.resolve();
          const steps = [...typed.keys()];
          return {
            steps,
            ...(section.applyAll === undefined ? {} : { applyAll }),
            waits: section.waits?.(desired, actual) ?? [],
            notices: section.notices?.(desired, actual) ?? [],
            unproven: section.unproven?.(desired, actual) ?? [],
            untold: section.untold?.(desired, actual) ?? [],
            reached: () => {
              settled = actual;
            },
            reported: () => section.report(actual),
          };
        },
      };
    },
    async applyStored(step, signal) {
      if (stored === undefined) throw new InternalError("internal", `${name}: the section cannot read its undo back`);
      await section.apply(stored.parse(step), signal);
    },
  };
}
