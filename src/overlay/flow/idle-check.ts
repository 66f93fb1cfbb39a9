/** A half-closed flow is ended after this idle time, so that dead half-open flows do not accumulate. */
const HALF_CLOSED_IDLE_MS = 60_000;

/** Finds out for how long a flow has moved nothing, from its progress at each sweep. */
export class IdleCheck {
  #progress = -1;
  #since = 0;

  /**
   * Reports whether the flow was idle for the timeout, of at most 60 s if it is half-closed. `progress` is a count
   * of bytes; `isInUse` keeps a flow that moves nothing; `now` is monotonic, in milliseconds.
   */
  isOver(
    progress: number,
    state: { readonly isInUse: boolean; readonly isHalfClosed: boolean },
    now: number,
    idleTimeoutMs: number,
  ): boolean {
    if (progress !== this.#progress || state.isInUse) {
      this.#progress = progress;
      this.#since = now;
      return false;
    }
    const limit = state.isHalfClosed ? Math.min(idleTimeoutMs, HALF_CLOSED_IDLE_MS) : idleTimeoutMs;
    return now - this.#since >= limit;
  }
}
