import { NoBody } from "../../../protocol/triggers/bodies.ts";
import { HostError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { Power } from "../../../host/process/power.ts";
import type { CleanStop } from "./clean-stop.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";
import { refuseWhileUpgrading, type IsUpgrading } from "./upgrading.ts";

export interface RestartOptions {
  readonly power: Power;
  readonly clock: Clock;
  readonly cleanStop: CleanStop;
  readonly isUpgrading: IsUpgrading;
  /** Records the event `Node Restart` and flushes the spool; stops when `signal` is aborted. */
  readonly announce: (signal: AbortSignal) => Promise<void>;
  /** Ends this process if a supervisor starts it again; absent, only a managed install restarts. */
  readonly exit?: () => void;
}

const FLUSH_MS = 2000;

/** Restarts this program after the reply. */
export function nodeRestartService({
  power,
  clock,
  cleanStop,
  isUpgrading,
  announce,
  exit,
}: RestartOptions): OneShotTrigger<object> {
  return {
    event: "node-restart-service",
    kind: "one-shot",
    request: NoBody,
    deadlineMs: 15_000,
    needsDataPlane: false,
    readOnly: false,
    isRemedy: () => true,
    agents: true,
    exclusive: "node",
    async handle(_request, { signal }) {
      if (!power.isManaged && exit === undefined) {
        throw new HostError("not-supported", "nothing would start the service again: this is not a managed install");
      }
      await refuseWhileUpgrading(isUpgrading);
      await withinFlushTime(announce, clock, signal);
      return { output: { message: "Node service will restart" } };
    },
    afterReply: {
      settledBy: "restart",
      async act() {
        await cleanStop.mark().catch(() => undefined); // A full disk must not prevent the restart.
        if (power.isManaged) await power.restartService();
        else exit?.();
      },
      failed: () => cleanStop.clear(),
    },
  };
}

/** A flush that takes too long must not prevent the restart. */
async function withinFlushTime(work: RestartOptions["announce"], clock: Clock, signal: AbortSignal): Promise<void> {
  const control = new AbortController();
  const stop = (): void => control.abort();
  const cancelTimer = clock.after(FLUSH_MS, stop);
  signal.addEventListener("abort", stop, { once: true });
  const ended = new Promise<void>((resolve) => {
    control.signal.addEventListener("abort", () => resolve(), { once: true });
  });
  try {
    await Promise.race([work(control.signal), ended]);
  } catch {
    // A failed announcement does not prevent the restart.
  } finally {
    cancelTimer();
    signal.removeEventListener("abort", stop);
  }
  signal.throwIfAborted();
}
