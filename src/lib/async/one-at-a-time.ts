/**
 * Coalesces calls of an operation that never runs concurrently. Each call resolves with a run that starts after the call; all calls made
 * during a run share the next one.
 */
export function oneAtATime<T>(run: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  let next: Promise<T> | undefined;
  const begin = (): Promise<T> => {
    const begun = run();
    const over = (): void => {
      if (running === begun) running = undefined;
    };
    begun.then(over, over);
    running = begun;
    return begun;
  };
  const afterRunning = (): Promise<T> => {
    next = undefined;
    return begin();
  };
  return () => {
    if (running === undefined) return begin();
    next ??= running.then(afterRunning, afterRunning);
    return next;
  };
}
