import { z } from "zod";
import { Text64, Text512, UnixMilliseconds } from "./values.ts";

/** Default, minimum and maximum time for a change to prove itself, in seconds. */
export const CONFIRM_SECONDS = { usual: 120, min: 30, max: 3600 } as const;
/** Durations of a trial, in minutes. */
export const TRY_MINUTES = [10, 30, 60] as const;

/**
 * Confirmation of a document's change by the node, which ends with the document's version. `seconds` is the time to prove
 * itself; with `tryMinutes` it is a trial, which must also be kept before that time is over.
 */
export const ConfirmRequest = z.object({
  seconds: z.int().min(CONFIRM_SECONDS.min).max(CONFIRM_SECONDS.max).optional(),
  tryMinutes: z.literal([...TRY_MINUTES]).optional(),
  /** Tells a change that is asked for once more from the one before. */
  askedAt: UnixMilliseconds,
});
export type ConfirmRequest = z.infer<typeof ConfirmRequest>;

/** Reason of a rollback: a code, the observation, and the failed step if there is one. */
export const RollbackCause = z.object({
  code: Text64,
  evidence: z.string().max(2048),
  step: z.object({ kind: Text64, subject: Text512 }).optional(),
});
export type RollbackCause = z.infer<typeof RollbackCause>;
