import type { Logger } from "pino";
import type { Clock } from "../clock.ts";

export interface WatchdogOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** Time without a sign of life after which the service manager kills this process, in milliseconds. */
  readonly limitMs: number;
  /** Returns the name of a component that does not respond; undefined if all do. A throw counts as no response. */
  readonly check: () => string | undefined;
  readonly feed: () => void;
}

/** After a failed check, the next one runs after 1/12 of the limit, so that a late response counts in time. */
const AGAIN_PARTS = 12;

/**
 * Sends a sign of life twice per limit while `check` reports nothing; a blocked event loop sends none. Returns a function that
 * stops it.
 */
export function startWatchdog({ clock, log, limitMs, check, feed }: WatchdogOptions): () => void {
  let reported: string | undefined;
  let cancel = (): void => undefined;
  const poll = (): void => {
    const stuck = checked(check);
    if (stuck === undefined) {
      feed();
      if (reported !== undefined) log.info("the stuck component responds again");
    } else if (stuck !== reported) {
      log.error({ code: "stuck", reason: stuck }, "watchdog keep-alive withheld: a component does not respond");
    }
    reported = stuck;
    cancel = clock.after(limitMs / (stuck === undefined ? 2 : AGAIN_PARTS), poll);
  };
  poll();
  return () => cancel();
}

function checked(check: () => string | undefined): string | undefined {
  try {
    return check();
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
