import type { Clock } from "../../host/clock.ts";
import type { OverlayListener } from "../../protocol/overlay/overlay.ts";
import { Gate } from "./rate-limiter.ts";
import { sourceFilter, type SourceFilter } from "./source-filter.ts";

/** Who may come through a listener, and how fast. */
export class Limits {
  readonly gates: { readonly in: Gate; readonly out: Gate };
  #filter: SourceFilter;

  constructor(clock: Clock, { sources, bitsPerSecond }: OverlayListener) {
    this.#filter = sourceFilter(sources);
    this.gates = { in: new Gate(clock, bitsPerSecond), out: new Gate(clock, bitsPerSecond) };
  }

  /** Puts others into force at once, for what runs too. */
  change({ sources, bitsPerSecond }: OverlayListener): void {
    this.#filter = sourceFilter(sources);
    this.gates.in.setRate(bitsPerSecond);
    this.gates.out.setRate(bitsPerSecond);
  }

  allows(sourceIp: string): boolean {
    return this.#filter.allows(sourceIp);
  }

  close(): void {
    this.gates.in.close();
    this.gates.out.close();
  }
}
