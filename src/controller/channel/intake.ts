import type { Clock } from "../../host/clock.ts";
import { FailureLimiter } from "./failure-limiter.ts";
import type { Source } from "./sources.ts";

/** Requests of one kind that are answered at a time: in all, and from one source prefix. */
const MAX_OPEN = 64;
const MAX_OPEN_PER_PREFIX = 8;

/** Limits requests of machines that are no nodes yet: those at a time, and failures a minute of a prefix. */
export class Intake {
  readonly #failures: FailureLimiter | undefined;
  /** By prefix; those of hidden clients together. */
  readonly #open = new Map<string | undefined, number>();

  /** Without `limitsFailures` failures do not block other machines of the same address. */
  constructor(clock: Clock, { limitsFailures }: { readonly limitsFailures: boolean }) {
    this.#failures = limitsFailures ? new FailureLimiter(clock) : undefined;
  }

  /** Seconds until a source may ask; undefined if it may now. */
  waitSeconds({ prefix }: Source): number | undefined {
    return this.#failures?.waitSeconds(prefix) ?? (this.#hasRoom(prefix) ? undefined : 1);
  }

  /** Counts a request until the returned function is called. */
  enter({ prefix }: Source): () => void {
    this.#open.set(prefix, this.#from(prefix) + 1);
    return () => {
      const left = this.#from(prefix) - 1;
      if (left === 0) this.#open.delete(prefix);
      else this.#open.set(prefix, left);
    };
  }

  failed({ prefix }: Source): void {
    this.#failures?.failed(prefix);
  }

  #from(prefix: string | undefined): number {
    return this.#open.get(prefix) ?? 0;
  }

  #hasRoom(prefix: string | undefined): boolean {
    let inAll = 0;
    for (const count of this.#open.values()) inAll += count;
    return inAll < MAX_OPEN && (prefix === undefined || this.#from(prefix) < MAX_OPEN_PER_PREFIX);
  }
}
