import { isIP } from "node:net";

/** Orders addresses so that families alternate, the first one's family leading (RFC 8305 §4). */
export function interleaveFamilies(addresses: readonly string[]): readonly string[] {
  const first = isIP(addresses[0] ?? "");
  const leading = addresses.filter((address) => isIP(address) === first);
  const following = addresses.filter((address) => isIP(address) !== first);
  const ordered: string[] = [];
  for (let i = 0; i < Math.max(leading.length, following.length); i += 1) {
    for (const address of [leading[i], following[i]]) if (address !== undefined) ordered.push(address);
  }
  return ordered;
}

export interface StaggerOptions<T> {
  readonly clock: { after(ms: number, run: () => void): () => void };
  readonly staggerMs: number;
  readonly signal: AbortSignal;
  /** Called with a success that came after another had already won. */
  readonly discard: (late: T) => void;
}

/**
 * Runs attempts in parallel. Each starts when the previous one has failed or `staggerMs` has passed; the first success aborts the
 * others (RFC 8305 §5). Rejects with the first error if all fail.
 */
export function staggered<T>(
  attempts: readonly ((signal: AbortSignal) => Promise<T>)[],
  { clock, staggerMs, signal, discard }: StaggerOptions<T>,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const losers = new AbortController();
    const attemptSignal = AbortSignal.any([signal, losers.signal]);
    let next = 0;
    let failed = 0;
    let firstError: unknown;
    let isOver = false;
    let cancelTimer = (): void => undefined;

    const finish = (act: () => void): void => {
      isOver = true;
      cancelTimer();
      act();
      losers.abort();
    };
    const begin = (): void => {
      cancelTimer();
      const attempt = attempts[next];
      if (isOver || attempt === undefined) return;
      next += 1;
      if (next < attempts.length) cancelTimer = clock.after(staggerMs, begin);
      attempt(attemptSignal).then(
        (value) => {
          if (isOver) discard(value);
          else finish(() => resolve(value));
        },
        (error: unknown) => {
          if (isOver) return;
          firstError ??= error;
          failed += 1;
          if (failed === attempts.length || signal.aborted) finish(() => reject(firstError));
          else begin();
        },
      );
    };
    if (attempts.length === 0) reject(new Error("no address to try"));
    else begin();
  });
}
