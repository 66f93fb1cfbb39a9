/** Waits until `probe` gives something else than undefined or false; fails with its description when the limit passes. */
export async function waitFor<T>(
  what: string,
  probe: () => T | Promise<T>,
  limitMs = 30_000,
): Promise<Exclude<T, undefined | false>> {
  const end = performance.now() + limitMs;
  let last: unknown;
  while (performance.now() < end) {
    try {
      const value = await probe();
      if (value !== undefined && value !== false) return value as Exclude<T, undefined | false>;
    } catch (error) {
      last = error;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`waited ${limitMs} ms in vain for: ${what}`, { cause: last });
}
