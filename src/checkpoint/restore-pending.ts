import type { Clock } from "../host/clock.ts";
import type { Files } from "../host/files/files.ts";
import { isLiving } from "../host/process/process-tree.ts";
import { Checkpoint, type Pending, type Restorable, type Restored } from "./checkpoint.ts";
import { commitFiles, type Rollback } from "./commit-files.ts";
import { isExpired, leftOf, type Moment } from "./window.ts";

/** Grace after the deadline during which a running agent keeps its change, in milliseconds. */
const GRACE_MS = 5000;
const MAX_LINES = 64;
const MAX_LINE = 512;
const MAX_EVIDENCE = 2048;

export interface RestoreDeps {
  readonly files: Files;
  readonly clock: Clock;
  readonly bootId: string;
  /** The state directory's `desired/`. */
  readonly dir: string;
  readonly restorables: readonly Restorable[];
  /** Runs the work under the restore lock, if the lock can be taken in time. */
  readonly alone: <T>(work: () => Promise<T>) => Promise<T>;
}

/** Result of handling a pending change. */
export type PendingEnd =
  | { readonly is: "none" }
  /** A running agent owns it for this many more milliseconds. */
  | { readonly is: "held"; readonly forMs: number }
  | { readonly is: "restored"; readonly id: string; readonly restored: Restored };

/**
 * Rolls a pending change back unless a running agent owns it and its deadline, plus a grace period, has not passed. Leaves a report for
 * the agent. Safe to repeat and to run concurrently.
 */
export async function restorePending(deps: RestoreDeps, signal: AbortSignal): Promise<PendingEnd> {
  const { files, clock, dir, alone } = deps;
  const { pending } = await new Checkpoint(files, dir).find();
  if (pending === undefined) return { is: "none" };
  const heldForMs = heldFor(pending, momentOf(deps));
  if (heldForMs > 0) return { is: "held", forMs: heldForMs };
  return alone(async () => {
    const checkpoint = new Checkpoint(files, dir);
    if (!(await checkpoint.takeOver(pending.id, clock.now()))) return { is: "none" };
    const restored = await checkpoint.restore(deps.restorables, signal);
    if (pending.window !== undefined) {
      const takenBack = reportOf(pending, restored, deps);
      const result = { id: pending.id, guards: pending.window.guards, takenBack };
      // The rollback is done even if its report cannot be written.
      await commitFiles(files, dir)
        .guardResult.save(result)
        .catch(() => undefined);
    }
    return { is: "restored", id: pending.id, restored };
  });
}

/** Returns how many more milliseconds a pending change belongs to its agent alone. */
function heldFor({ window }: Pick<Pending, "window">, now: Moment): number {
  if (window === undefined || window.bootId !== now.bootId || !isLiving(window.owner)) return 0;
  return Math.max(0, window.deadline + GRACE_MS - now.sinceBoot);
}

/** Returns how many milliseconds the guard waits: the agent may return until the deadline. */
export function untilDue(pending: Pick<Pending, "window">, now: Moment): number {
  const { window } = pending;
  if (window === undefined) return 0;
  return Math.max(leftOf(window, now), heldFor(pending, now));
}

/** Converts the result of a restore to the fields of the report. */
export function failuresOf({ failed, isDamaged }: Restored): string[] {
  const lines = failed.map(({ section, error }) => `${section}: ${error.message}`.slice(0, MAX_LINE));
  return [...(isDamaged ? ["the stored undo was damaged"] : []), ...lines].slice(0, MAX_LINES);
}

/** Returns why a change ended and what its first attempt had found. */
export function withTry(evidence: string, unreached: string | undefined): string {
  return unreached === undefined ? evidence : `${evidence}; before that: ${unreached}`.slice(0, MAX_EVIDENCE);
}

function momentOf({ clock, bootId }: RestoreDeps): Moment {
  return { bootId, sinceBoot: clock.sinceBoot() };
}

function reportOf(pending: Pending, restored: Restored, deps: RestoreDeps): Rollback {
  const { window } = pending;
  const now = momentOf(deps);
  const about = { at: deps.clock.now(), by: "guard", failed: failuresOf(restored) } as const;
  if (window === undefined) {
    const evidence = "the agent ended in the middle of the change";
    return { ...about, code: "interrupted", evidence, mode: "save", isLocal: false, versions: {} };
  }
  const { mode, isLocal, versions, unreached } = window;
  const why = whyOf(window.bootId !== now.bootId, isLiving(window.owner), isExpired(window, now));
  const evidence = withTry(why.evidence, unreached);
  const wasTried = unreached === undefined ? {} : { wasTried: true };
  return { ...about, code: why.code, evidence, ...wasTried, mode, isLocal, versions };
}

function whyOf(isRebooted: boolean, isLiving: boolean, isExpired: boolean): Pick<Rollback, "code" | "evidence"> {
  if (isRebooted) return { code: "rebooted", evidence: "the machine restarted before the change was confirmed" };
  if (isLiving) return { code: "hung", evidence: "the agent did not answer at the end of the confirm window" };
  const when = isExpired ? "and did not come back within the confirm window" : "before the change was confirmed";
  return { code: "interrupted", evidence: `the agent ended ${when}` };
}
