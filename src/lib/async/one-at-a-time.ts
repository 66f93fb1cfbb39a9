/**
 * Runs something never twice at once: each call resolves with a run that begins no earlier than the call, and all that have to wait for
 * the running one share the next.
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
