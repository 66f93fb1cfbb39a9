import type { z } from "zod";
import { InternalError } from "../../errors.ts";
import type { Issue } from "../../protocol/documents/reconcile.ts";
import { defined } from "../../lib/defined.ts";

export type { Issue } from "../../protocol/documents/reconcile.ts";

export interface Section<Desired, Actual, S extends Step> {
  readonly name: string;
  /** True if it gets an empty desired value while the node is INACTIVE. */
  readonly needsDataPlane?: boolean;
  /** Time limit of one `observe` or `apply`, in milliseconds; default 30 s. */
  readonly deadlineMs?: number;
  /** Parses a stored undo. Required for guarded steps; without it no step of the section is stored. */
  readonly stored?: z.ZodType<S>;
  /**
   * Parses the raw section (undefined: absent) into a typed value and its rejected items; no later code checks shapes. Pure: each value is
   * parsed once.
   */
  parse(raw: unknown): Parsed<Desired>;
  /** Returns why this node does not support the section; the machine is then not observed. Called only if the section is desired. */
  unsupported?(): string | undefined;
  /** Observes what the agent has on the machine. Changes nothing. */
  observe(signal: AbortSignal, desired?: Desired): Promise<Actual>;
  /** Lists the steps from actual to desired, in order. Pure; empty means converged. */
  plan(desired: Desired, actual: Actual): readonly S[];
  /**
   * Returns the observation with the section's surroundings (the addresses of a link) as they were `before`. Steps due only because the
   * surroundings changed are no drift; without this method every difference is. Pure.
   */
  asSurrounded?(actual: Actual, before: Actual): Actual;
  /** Describes a step on one line for people: subject, change, and whether flows end. Free of secrets. Pure. */
  describe?(step: S, actual: Actual): string;
  /** Returns the undo of a step, stored before the step is applied. Pure. */
  undo(step: S, actual: Actual): S | undefined;
  /** Applies one step; safe to repeat after a crash. */
  apply(step: S, signal: AbortSignal): Promise<void>;
  /** Applies unguarded steps atomically, for an engine that accepts all or nothing. */
  applyAll?(steps: readonly S[], signal: AbortSignal): Promise<void>;
  /**
   * Returns the report for the shadow, small and free of secrets: `config.<section>.reported.<key>`, or the key itself if the platform
   * defines it.
   */
  report(actual: Actual): Readonly<Record<string, unknown>>;
  /** Returns issues that keep items from working although the plan is empty (a port in use); the outcome is then `pending`. Pure. */
  waits?(desired: Desired, actual: Actual): readonly Issue[];
  /** Returns conditions outside our control that prevent the applied config from working. Pure. */
  notices?(desired: Desired, actual: Actual): readonly Issue[];
  /**
   * Returns what must happen before a change can be proven, while part of the old state is held (a lease on the path to the control
   * plane). Pure.
   */
  unproven?(desired: Desired, actual: Actual): readonly Issue[];
  /** Returns paths of items whose state is not known yet; their earlier issues keep their start time. Pure. */
  undetermined?(desired: Desired, actual: Actual): readonly string[];
}

export interface Parsed<Desired> {
  readonly desired: Desired;
  /** Items that are rejected or unsupported. */
  readonly rejected: readonly Issue[];
  /** Parts that are ignored or interpreted differently; no action is needed. */
  readonly notices?: readonly Issue[];
  /** True if no part of the section is usable: the machine stays unchanged and the outcome is `rejected`. */
  readonly isUnusable?: boolean;
}

export interface Step {
  readonly kind: string; // the operation
  readonly subject: string; // what it acts on
  /** Display name, if it differs from `subject`. */
  readonly name?: string;
  readonly guarded: boolean; // could it cut the node off?
  /** True if the step only removes and may precede all other steps of its section. */
  readonly removes?: boolean;
}

/** Returns a step's display name. Pure. */
export function nameOf({ kind, subject, name = subject }: Step): string {
  return `${kind} ${name}`;
}

/** Returns a step without its other fields, which may be secret. */
export function shown({ kind, subject, name, guarded }: Step): Step {
  return { kind, subject, guarded, ...defined({ name }) };
}

export type Outcome =
  | { readonly state: "converged" }
  | { readonly state: "rejected"; readonly issues: readonly Issue[] } // nothing of it could be used
  | { readonly state: "failed"; readonly step?: Step; readonly error: Error } // retried with backoff
  | { readonly state: "diverged"; readonly remaining: readonly Step[] } // applied, yet still off target
  | { readonly state: "pending"; readonly reason: string } // waits for something named
  | { readonly state: "unsupported"; readonly reason: string };

/** A section with its types hidden from the engine. */
export interface Reconciler {
  readonly name: string;
  readonly needsDataPlane: boolean;
  readonly deadlineMs: number;
  /** True if it may have steps that could cut the node off. */
  readonly canCutOff: boolean;
  /** Parses a desired value; the result can be planned repeatedly. */
  prepare(raw: unknown): Prepared;
  /** Applies a stored undo. */
  applyStored(step: unknown, signal: AbortSignal): Promise<void>;
}

/** A parsed section. */
export interface Prepared {
  readonly rejected: readonly Issue[];
  readonly notices: readonly Issue[];
  readonly isUnusable: boolean;
  /** Reason why this node does not support it. */
  readonly unsupported?: string;
  /** Observes and plans. */
  observe(signal: AbortSignal): Promise<View>;
}

/** An observation and the steps that remain. */
export interface View {
  readonly steps: readonly PlannedStep[];
  /** Applies several steps atomically, if the section can. */
  readonly applyAll?: (steps: readonly PlannedStep[], signal: AbortSignal) => Promise<void>;
  readonly waits: readonly Issue[];
  readonly notices: readonly Issue[];
  readonly unproven: readonly Issue[];
  readonly undetermined: readonly string[];
  /** Records that the desired state is reached in the observed surroundings. */
  readonly reached: () => void;
  readonly reported: () => Readonly<Record<string, unknown>>;
}

/** A planned step and its stored undo; null if it cannot be undone. */
export interface PlannedStep {
  readonly step: Step;
  /** True if the step only follows changed surroundings and corrects no drift. */
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
  /** Returns the subjects of steps that would be due in the earlier surroundings; undefined if unknown. */
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
        async observe(signal) {
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
            undetermined: section.undetermined?.(desired, actual) ?? [],
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
