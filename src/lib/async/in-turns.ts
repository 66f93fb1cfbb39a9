/** Runs `work` for every item, at most `abreast` concurrently; results keep the items' order. Rejects with the first failure. */
export async function inTurns<T, R>(items: readonly T[], abreast: number, work: (item: T) => Promise<R>): Promise<R[]> {
  const results = new Map<number, R>();
  const left = items.entries();
  const lane = async (): Promise<void> => {
    // All lanes share one iterator.
    for (const [at, item] of left) results.set(at, await work(item));
  };
  await Promise.all(Array.from({ length: Math.min(abreast, items.length) }, lane));
  return [...results].sort(([a], [b]) => a - b).map(([, result]) => result);
}
