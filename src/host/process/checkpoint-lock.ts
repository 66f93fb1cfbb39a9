import type { Clock } from "../clock.ts";
import { lockRunDirectory, type RunLock } from "./run-lock.ts";

const EVERY_MS = 100;

/**
 * Runs `work` while holding the checkpoint lock of a directory. Waits for the lock at most `waitMs` milliseconds and then runs
 * without it: a hung process must not leave a machine disconnected, and two restores have the same result.
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
    return undefined; // another process holds it
  }
}
