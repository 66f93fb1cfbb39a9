import { z } from "zod";
import { RollbackCause } from "../values/commit.ts";
import { Text512, Text1024, UnixMilliseconds, Version } from "../values/values.ts";

const Versions = z.partialRecord(z.enum(["node", "cluster", "domain"]), Version);

/** A change of the network that is being applied or proven, or tried until its time is over. */
export const PendingChange = z.object({
  mode: z.enum(["save", "try"]),
  state: z.enum(["applying", "proving", "awaiting-keep"]),
  since: UnixMilliseconds,
  /** Wall-clock time as of the start; `secondsLeft` is authoritative. */
  deadline: UnixMilliseconds,
  secondsLeft: z.number().min(0),
  versions: Versions,
  /** Tried on this machine, and not of a document. */
  isLocal: z.boolean(),
  /** Targets that a change must reach: the control plane, and one of this many gateways. */
  before: z.object({ session: z.boolean(), gateways: z.int().min(0) }),
  /** Targets that the last attempt did not reach, one line each. */
  unreached: z.array(Text1024).max(64),
});
export type PendingChange = z.infer<typeof PendingChange>;

/** A change that was rolled back: time, program and reason. */
export const RolledBackChange = z.object({
  at: UnixMilliseconds,
  by: z.enum(["agent", "guard"]),
  ...RollbackCause.shape,
  mode: z.enum(["save", "try"]),
  isLocal: z.boolean(),
  versions: Versions,
  /** The change is retried, withheld until it is edited, or superseded. */
  is: z.enum(["waiting", "refused", "over"]),
  failed: z.array(Text512).max(64),
});
export type RolledBackChange = z.infer<typeof RolledBackChange>;

/** State of network changes on this node. */
export const CommitReport = z.object({
  schema: z.literal(1),
  pending: PendingChange.optional(),
  lastTakenBack: RolledBackChange.optional(),
  /** Network applied instead of the documents' one, until the machine reboots. */
  kept: z.object({ since: UnixMilliseconds }).optional(),
});
export type CommitReport = z.infer<typeof CommitReport>;
