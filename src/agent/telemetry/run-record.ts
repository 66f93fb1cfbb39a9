import { z } from "zod";
import type { NodeAudit } from "../../protocol/documents/telemetry.ts";
import { Text64 } from "../../protocol/values/values.ts";
import type { Clearing, EventInput } from "./events.ts";
import { defined } from "../../lib/defined.ts";

/** Record of one run for the next; written at the start, and again with `isStopped` at a clean stop. */
export const RunRecord = z.object({
  bootId: Text64.optional(),
  packageVersion: Text64.optional(),
  isStopped: z.boolean(),
});
export type RunRecord = z.infer<typeof RunRecord>;

/** Facts of this start. */
export interface Run {
  readonly bootId: string | undefined;
  readonly packageVersion: string | undefined;
  readonly startupErrors: readonly string[];
  /** Unix seconds. */
  readonly startedAt: number;
}

export interface RunAssessment {
  readonly notices: readonly EventInput[];
  readonly raises: readonly EventInput[];
  readonly clears: readonly Clearing[];
  readonly audits: readonly NodeAudit[];
  readonly record: RunRecord;
}

const STARTUP = { eventType: "Node Startup Error", object: "startup" } as const;
const MAX_LISTED = 20;

/** Returns the events of this start: a reboot, an unclean stop, an update, and the start itself. Pure. */
export function assessRun(previous: RunRecord | undefined, run: Run): RunAssessment {
  const notices: EventInput[] = [];
  if (previous?.bootId !== undefined && run.bootId !== undefined && previous.bootId !== run.bootId) {
    notices.push({
      eventType: "Node Device Reboot",
      object: "machine",
      level: "INFO",
      message: "Node device was rebooted",
    });
  }
  if (previous !== undefined && !previous.isStopped) {
    notices.push({
      eventType: "Node Stop Error",
      object: "service",
      level: "ERROR",
      message: "Failed to stop the Node service cleanly",
    });
  }
  const hasErrors = run.startupErrors.length > 0;
  const errors = run.startupErrors.slice(0, MAX_LISTED).map((error) => error.slice(0, 256));
  const [before, after] = [previous?.packageVersion, run.packageVersion ?? previous?.packageVersion];
  return {
    notices,
    raises: hasErrors
      ? [{ ...STARTUP, level: "CRITICAL", message: "Startup errors have been reported", details: { errors } }]
      : [],
    clears: hasErrors ? [] : [{ ...STARTUP, message: "The node started without errors" }],
    audits:
      before === undefined || after === undefined || before === after
        ? []
        : [{ category: "Node Update", value: `Updated from ${before} to ${after}`, timestamp: run.startedAt }],
    record: {
      ...defined({ bootId: run.bootId, packageVersion: after }),
      isStopped: false,
    },
  };
}

/** Returns the record of a clean stop. */
export function stoppedRun(record: RunRecord): RunRecord {
  return { ...record, isStopped: true };
}
