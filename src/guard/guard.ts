import { Checkpoint, type Restorable } from "../checkpoint/checkpoint.ts";
import { failuresOf, restorePending, untilDue, type PendingEnd } from "../checkpoint/restore-pending.ts";
import { aloneIn } from "../host/process/checkpoint-lock.ts";
import type { Clock } from "../host/clock.ts";
import type { Files } from "../host/files/files.ts";
import { toError } from "../errors.ts";

export interface GuardDeps {
  readonly files: Files;
  readonly clock: Clock;
  readonly bootId: string;
  readonly stateDir: string;
  /** Sections that can undo a step of a pending change. */
  readonly restorables: readonly Restorable[];
  /** Waits this many milliseconds with minimal memory; may re-execute the program instead of returning. */
  readonly wait: (ms: number, id: string) => Promise<void>;
  readonly print: (line: string) => void;
}

/** Attempts of a failing restore and the delays between them; delays grow if no other process will retry. */
const MAX_TRIES = 5;
const MAX_TRIES_WATCHING = 40;
const RETRY_MS = 2000;
const MAX_RETRY_MS = 60_000;
const LOCK_MS = 10_000;

/** Rolls back a pending change that no running agent owns; resolves to the exit status. */
export async function restore(deps: GuardDeps, signal: AbortSignal, maxTries = MAX_TRIES): Promise<number> {
  for (let tries = 1; ; tries += 1) {
    const end = await attempt(deps, signal).catch((error: unknown) => {
      signal.throwIfAborted();
      if (tries >= maxTries) throw error;
      return toError(error);
    });
    if (end instanceof Error) {
      deps.print(`not rolled back: ${end.message}`);
      await deps.clock.sleep(retryMs(tries), signal);
      continue;
    }
    if (end.is !== "restored") {
      deps.print(
        end.is === "none" ? "nothing is pending" : `the agent has it: ${Math.ceil(end.forMs / 1000)} s are left`,
      );
      return 0;
    }
    const failures = failuresOf(end.restored);
    deps.print(
      `rolled back: ${end.restored.undone} steps${failures.length === 0 ? "" : `, not: ${failures.join("; ")}`}`,
    );
    if (failures.length === 0) return 0;
    if (tries >= maxTries) return 1;
    await deps.clock.sleep(retryMs(tries), signal);
  }
}

/** Waits for the deadline of the pending change `id` (or of any), then rolls it back unless its agent did. */
export async function watch(deps: GuardDeps, id: string | undefined, signal: AbortSignal): Promise<number> {
  for (;;) {
    const { pending } = await new Checkpoint(deps.files, `${deps.stateDir}/desired`).find();
    if (pending === undefined || (id !== undefined && pending.id !== id)) return 0;
    const waitMs = untilDue(pending, { bootId: deps.bootId, sinceBoot: deps.clock.sinceBoot() });
    if (waitMs <= 0) {
      const status = await restore(deps, signal, MAX_TRIES_WATCHING);
      // A new agent may have adopted it at the last moment.
      if (status !== 0) return status;
      continue;
    }
    await deps.wait(waitMs, pending.id);
    signal.throwIfAborted();
  }
}

function retryMs(tries: number): number {
  return Math.min(MAX_RETRY_MS, RETRY_MS * Math.max(1, tries - MAX_TRIES + 1));
}

function attempt(deps: GuardDeps, signal: AbortSignal): Promise<PendingEnd> {
  const { files, clock, bootId, stateDir, restorables } = deps;
  const dir = `${stateDir}/desired`;
  const alone = <T>(work: () => Promise<T>): Promise<T> => aloneIn(dir, { clock, waitMs: LOCK_MS, signal }, work);
  return restorePending({ files, clock, bootId, dir, restorables, alone }, signal);
}
