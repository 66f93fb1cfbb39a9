import { z } from "zod";
import { reportingDamage, type OnDamage } from "../host/files/damage.ts";
import type { Files } from "../host/files/files.ts";
import { stateFile, type StateFile } from "../host/files/state-file.ts";
import { RollbackCause } from "../protocol/values/commit.ts";
import { Text64, Text512 } from "../protocol/values/values.ts";
import { WindowMode } from "./window.ts";

const Versions = z.record(Text64, z.number());
const Sections = z.record(Text64, z.unknown());

/** Last proven configuration of the sections that could cut the node off. */
export const Confirmed = z.object({
  /** Desired value by section; `null` for an absent one. */
  sections: Sections,
  versions: Versions,
  /** Sections that an operator tried and confirmed on this machine; valid until a restart or until the documents differ from `over`. */
  kept: z.object({ bootId: Text64, at: z.number(), sections: Sections, over: Sections }).optional(),
});
export type Confirmed = z.infer<typeof Confirmed>;

/** Details of a rolled-back change. */
export const Rollback = z.object({
  at: z.number(),
  by: z.enum(["agent", "guard"]),
  ...RollbackCause.shape,
  /** True if at least one attempt to reach all targets had failed. */
  wasTried: z.boolean().optional(),
  /** Gateways reached before, if only these were missed, or if it is late: without one of them the change is not to blame. */
  gateways: z.array(z.string().max(300)).max(64).optional(),
  /** Duration for which the control plane was unreachable, if no other target explains it. */
  silentMs: z.number().optional(),
  /** True if no attempt began in the last 15 s of the window, or the targets were reached after it: nothing is known of the change. */
  isLate: z.boolean().optional(),
  /** A gateway was reached and only the control plane was not. */
  isHeard: z.boolean().optional(),
  mode: WindowMode,
  isLocal: z.boolean(),
  versions: Versions,
  /** Failed undos, one line each. */
  failed: z.array(Text512).max(64),
});
export type Rollback = z.infer<typeof Rollback>;

/** A change that is withheld, for now or permanently in this form; the last confirmed configuration stays applied. */
export const Withheld = z.object({
  /** Desired value of each section in the attempt. */
  guards: Sections,
  last: Rollback,
  /** Number of attempts. */
  attempts: z.int().min(1),
  /** Whether it is tried again once the control plane is reachable. */
  is: z.enum(["waiting", "refused"]),
});
export type Withheld = z.infer<typeof Withheld>;

/** Report of the guard, for the agent. */
export const GuardResult = z.object({
  id: z.uuid(),
  guards: Sections,
  takenBack: Rollback,
});
export type GuardResult = z.infer<typeof GuardResult>;

/** Files about confirmed changes, stored beside the checkpoint. */
export interface CommitFiles {
  readonly confirmed: StateFile<Confirmed>;
  readonly withheld: StateFile<Withheld>;
  readonly guardResult: StateFile<GuardResult>;
}

/** Opens the files in `dir`, the `desired/` of the state directory, which also holds the checkpoint. */
export function commitFiles(files: Files, dir: string, onDamage?: OnDamage): CommitFiles {
  const at = <T>(name: string, schema: z.ZodType<T>, keepsPrevious: boolean): StateFile<T> =>
    reportingDamage(
      stateFile(files, { path: `${dir}/${name}.json`, schema, keepsPrevious }),
      `desired/${name}.json`,
      onDamage,
    );
  return {
    confirmed: at("confirmed", Confirmed, true),
    withheld: at("withheld", Withheld, false),
    guardResult: at("checkpoint-result", GuardResult, false),
  };
}
