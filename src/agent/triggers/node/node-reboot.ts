import { NoBody } from "../../../protocol/triggers/bodies.ts";
import { HostError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { Power } from "../../../host/process/power.ts";
import type { CleanStop } from "./clean-stop.ts";
import { refuseWhileUpgrading, type IsUpgrading } from "./upgrading.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

export interface RebootOptions {
  readonly power: Power;
  readonly clock: Clock;
  readonly cleanStop: CleanStop;
  readonly isUpgrading: IsUpgrading;
}

/** Delay after the acknowledgement, as the platform documents. */
const DELAY_MS = 5000;

/** Restarts the machine five seconds after the reply. */
export function nodeReboot({ power, clock, cleanStop, isUpgrading }: RebootOptions): OneShotTrigger<object> {
  return {
    event: "node-reboot",
    kind: "one-shot",
    request: NoBody,
    deadlineMs: 15_000,
    needsDataPlane: false,
    readOnly: false,
    isRemedy: () => true,
    agents: false,
    exclusive: "node",
    async handle() {
      if (!power.isManaged) {
        throw new HostError("not-supported", "the host is not managed by this program: this is not a managed install");
      }
      await refuseWhileUpgrading(isUpgrading);
      return { output: { message: "Node host will restart" } };
    },
    afterReply: {
      settledBy: "reboot",
      async act(signal) {
        await clock.sleep(DELAY_MS, signal);
        await cleanStop.mark().catch(() => undefined); // A full disk must not prevent the restart.
        await power.reboot();
      },
      failed: () => cleanStop.clear(),
    },
  };
}
