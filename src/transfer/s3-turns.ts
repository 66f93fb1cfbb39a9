/**
 * Runs `items` in order with bounded concurrency. The first failure aborts the others and is thrown once all have ended, so nothing
 * continues in the background.
 */
export async function runAll<T>(
  items: readonly T[],
  atATime: number,
  signal: AbortSignal,
  work: (item: T, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const ending = new AbortController();
  const either = AbortSignal.any([signal, ending.signal]);
  let next = 0;
  const failures: unknown[] = [];
  const worker = async (): Promise<void> => {
    while (next < items.length && !either.aborted) {
      const item = items[next] as T;
      next += 1;
      try {
        await work(item, either);
      } catch (error) {
        failures.push(error);
        ending.abort(error);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(atATime, items.length) }, worker));
  signal.throwIfAborted();
  if (failures.length > 0) throw failures[0];
}
