import type { Clock } from "../clock.ts";
import { lockRunDirectory, type RunLock } from "./run-lock.ts";

const EVERY_MS = 100;

/**
 * Does work while nobody else who asks here for the same directory does, waiting at most `waitMs` for them: whoever hangs must not keep a
 * machine cut off, and two restores lead to the same end.
 */
export async function aloneIn<T>(
  dir: string,
  { clock, waitMs, signal }: { readonly clock: Clock; readonly waitMs: number; readonly signal: AbortSignal },
  work: () => Promise<T>,
): Promise<T> {
  const until = clock.elapsed() + waitMs;
  let lock = tryLock(dir);
  while (lock === undefined && clock.elapsed() < until) {
    await clock.sleep(EVERY_MS, signal);
    lock = tryLock(dir);
  }
  try {
    return await work();
  } finally {
    lock?.release();
  }
}

function tryLock(dir: string): RunLock | undefined {
  try {
    return lockRunDirectory(dir, "checkpoint");
  } catch {
    return undefined; // somebody else has it
  }
}
