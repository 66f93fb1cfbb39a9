import type { Logger } from "pino";
import type { Clock } from "../clock.ts";

export interface WatchdogOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** How long the service manager waits for a sign of life before it ends this process. */
  readonly limitMs: number;
  /** Names what does not answer or goes on no more; undefined while all does. A check that throws has not answered. */
  readonly check: () => string | undefined;
  readonly feed: () => void;
}

/** What did not answer may have been late: it is asked again before the time is up. */
const AGAIN_PARTS = 12;

/**
 * Gives signs of life, twice in the time allowed, as long as `check` finds nothing; a loop that does not turn gives none. The returned
 * function ends it.
 */
export function startWatchdog({ clock, log, limitMs, check, feed }: WatchdogOptions): () => void {
  let told: string | undefined;
  let cancel = (): void => undefined;
  const look = (): void => {
    const stuck = checked(check);
    if (stuck === undefined) {
      feed();
      if (told !== undefined) log.info("what did not answer does again");
    } else if (stuck !== told) {
      log.error({ code: "stuck", reason: stuck }, "no sign of life is given");
    }
    told = stuck;
    cancel = clock.after(limitMs / (stuck === undefined ? 2 : AGAIN_PARTS), look);
  };
  look();
  return () => cancel();
}

function checked(check: () => string | undefined): string | undefined {
  try {
    return check();
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
