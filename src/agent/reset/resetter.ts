import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { Files } from "../../host/files/files.ts";
import { requireSettled } from "../../host/files/state-directory.ts";
import type { LocalProvider } from "../local-api/provider.ts";
import { orderReset } from "./order.ts";
import type { AgentSettings } from "../settings.ts";
import type { Pusher } from "../telemetry/pusher.ts";
import type { EventLog } from "../telemetry/events.ts";

export interface ResetterOptions {
  readonly settings: Pick<AgentSettings, "stateDir">;
  readonly clock: Clock;
  readonly files: Files;
  /** Unix milliseconds. */
  readonly startedAt: number;
  readonly isPersistent: boolean;
  readonly events: Pick<EventLog, "notice">;
  readonly pusher: Pick<Pusher, "sent">;
  readonly isOnline: () => boolean;
  readonly upgrades: { isAtWork(): Promise<boolean> };
  readonly onReset?: () => void;
}

/** Time limit of the control plane's acknowledgement of the event. */
const REPORT_MS = 5000;

/** Accepts the order for a reset: writes it to disk, and reports it to the control plane if there is a session. */
export function resetter(options: ResetterOptions): LocalProvider["reset"] {
  const { settings, clock, files, startedAt, isPersistent, events, pusher, isOnline, upgrades, onReset } = options;
  const { stateDir } = settings;
  return async ({ factory }) => {
    if (onReset === undefined)
      throw new InputError(
        "not-supported",
        "this agent cannot start anew after a reset: stop it and run 'holdfast reset'",
      );
    if (!isPersistent) throw new InputError("storage-unavailable", `${stateDir} cannot be written`);
    if (await upgrades.isAtWork()) throw new InputError("busy", "an upgrade is in progress: wait until it is done");
    await requireSettled(files, stateDir);
    await orderReset(files, stateDir, { factory, at: clock.now() });
    const how = factory ? "factory reset" : "reset";
    events.notice({
      eventType: "Deregister",
      object: "node",
      level: "INFO",
      message: `Node deregisters: a ${how} was ordered on the machine`,
      details: { factory },
    });
    const isReported = isOnline() && (await pusher.sent(REPORT_MS));
    return { answer: { factory, startedAt, stateDir, isReported }, begin: onReset };
  };
}
