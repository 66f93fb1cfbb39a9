import { HostError, toError } from "../../errors.ts";
import type { Clock } from "../clock.ts";

/** A deadline and the caller's signal, joined into one signal for a request. */
export interface Limit {
  readonly signal: AbortSignal;
  /** Sets another deadline from now in place of the last, or none; the caller's signal goes on. */
  allow(ms: number | undefined): void;
  /** Takes back the deadline and the signal. */
  release(): void;
}

/** After `deadlineMs` the signal is aborted with {HostError} `timeout` that names `what`. */
export function limit(clock: Clock, what: string, deadlineMs: number, signal: AbortSignal): Limit {
  signal.throwIfAborted();
  const controller = new AbortController();
  const onAbort = (): void => controller.abort(toError(signal.reason));
  const ring = (ms: number): (() => void) =>
    clock.after(ms, () => {
      controller.abort(new HostError("timeout", `${what}: the container engine did not answer within ${ms} ms`));
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
