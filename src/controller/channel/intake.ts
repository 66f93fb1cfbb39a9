import type { Clock } from "../../host/clock.ts";
import { FailureLimiter } from "../http/failure-limiter.ts";
import type { Source } from "../http/sources.ts";

/** Limits of concurrent requests of one kind: in total, and per source prefix. */
const MAX_OPEN = 64;
const MAX_OPEN_PER_PREFIX = 8;

/** Limits requests of unregistered machines: concurrent ones, and failures per minute and prefix. */
export class Intake {
  readonly #failures: FailureLimiter | undefined;
  /** Number of open requests by prefix; hidden clients share one entry. */
  readonly #open = new Map<string | undefined, number>();

  /** Without `limitsFailures`, failures do not block other machines of the same address. */
  constructor(clock: Clock, { limitsFailures }: { readonly limitsFailures: boolean }) {
    this.#failures = limitsFailures ? new FailureLimiter(clock) : undefined;
  }

  /** Returns the seconds until a source may send a request; undefined if at once. */
  waitSeconds({ prefix }: Source): number | undefined {
    return this.#failures?.waitSeconds(prefix) ?? (this.#hasRoom(prefix) ? undefined : 1);
  }

  /** Counts a request until the returned function is called. */
  enter({ prefix }: Source): () => void {
    this.#open.set(prefix, this.#countOf(prefix) + 1);
    return () => {
      const left = this.#countOf(prefix) - 1;
      if (left === 0) this.#open.delete(prefix);
      else this.#open.set(prefix, left);
    };
  }

  failed({ prefix }: Source): void {
    this.#failures?.failed(prefix);
  }

  #countOf(prefix: string | undefined): number {
    return this.#open.get(prefix) ?? 0;
  }

  #hasRoom(prefix: string | undefined): boolean {
    let total = 0;
    for (const count of this.#open.values()) total += count;
    return total < MAX_OPEN && (prefix === undefined || this.#countOf(prefix) < MAX_OPEN_PER_PREFIX);
  }
}
