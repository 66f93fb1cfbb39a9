import type { Clock } from "../../host/clock.ts";
import type { OverlayListener } from "../../protocol/overlay/overlay.ts";
import { RateLimiter, type TwoWayLimiters } from "./rate-limiter.ts";
import { sourceFilter, type SourceFilter } from "./source-filter.ts";

/** Source filter and rate limits of a listener. */
export class Limits {
  readonly limiters: TwoWayLimiters;
  #filter: SourceFilter;

  constructor(clock: Clock, { sources, bitsPerSecond }: OverlayListener) {
    this.#filter = sourceFilter(sources);
    this.limiters = { in: new RateLimiter(clock, bitsPerSecond), out: new RateLimiter(clock, bitsPerSecond) };
  }

  /** Applies changed limits, also to running flows. */
  change({ sources, bitsPerSecond }: OverlayListener): void {
    this.#filter = sourceFilter(sources);
    this.limiters.in.setRate(bitsPerSecond);
    this.limiters.out.setRate(bitsPerSecond);
  }

  allows(sourceIp: string): boolean {
    return this.#filter.allows(sourceIp);
  }

  close(): void {
    this.limiters.in.close();
    this.limiters.out.close();
  }
}
