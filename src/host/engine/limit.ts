import { HostError, toError } from "../../errors.ts";
import type { Clock } from "../clock.ts";

/** A deadline joined with the caller's signal into one signal for a request. */
export interface Limit {
  readonly signal: AbortSignal;
  /** Replaces the deadline, counted from now, or removes it; the caller's signal stays in effect. */
  allow(ms: number | undefined): void;
  /** Cancels the deadline and detaches from the signal. */
  release(): void;
}

/** Returns a limit whose signal aborts after `deadlineMs` with {HostError} `timeout` that names `what`. */
export function limit(clock: Clock, what: string, deadlineMs: number, signal: AbortSignal): Limit {
  signal.throwIfAborted();
  const controller = new AbortController();
  const onAbort = (): void => controller.abort(toError(signal.reason));
  const ring = (ms: number): (() => void) =>
    clock.after(ms, () => {
      controller.abort(new HostError("timeout", `${what}: the container engine did not respond within ${ms} ms`));
    });
  signal.addEventListener("abort", onAbort, { once: true });
  let cancel = ring(deadlineMs);
  return {
    signal: controller.signal,
    allow(ms) {
      cancel();
      cancel = ms === undefined ? () => undefined : ring(ms);
    },
    release() {
      cancel();
      signal.removeEventListener("abort", onAbort);
    },
  };
}
