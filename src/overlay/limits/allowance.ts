import type { Clock } from "../../host/clock.ts";

export class Allowance {
  readonly #clock: Pick<Clock, "elapsed">;
  readonly #burst: number;
  readonly #perSecond: number;
  #left: number;
  #at: number;

  constructor(clock: Pick<Clock, "elapsed">, burst: number, perSecond: number) {
    this.#clock = clock;
    this.#burst = burst;
    this.#perSecond = perSecond;
    this.#left = burst;
    this.#at = clock.elapsed();
  }

  get isUsedUp(): boolean {
    this.#refill();
    return this.#left < 1;
  }

  /** Takes one token, or a fraction; false if less than one was left. */
  take(cost = 1): boolean {
    if (this.isUsedUp) return false;
    this.#left -= cost;
    return true;
  }

  #refill(): void {
    const now = this.#clock.elapsed();
    this.#left = Math.min(this.#burst, this.#left + ((now - this.#at) * this.#perSecond) / 1000);
    this.#at = now;
  }
}
