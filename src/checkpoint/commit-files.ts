import { z } from "zod";
import { tellingDamage, type OnDamage } from "../host/files/damage.ts";
import type { Files } from "../host/files/files.ts";
import { stateFile, type StateFile } from "../host/files/state-file.ts";
import { WhyTakenBack } from "../protocol/values/commit.ts";
import { Text64, Text512 } from "../protocol/values/values.ts";
import { WindowMode } from "./window.ts";

const Versions = z.record(Text64, z.number());
const Sections = z.record(Text64, z.unknown());

/** What was last proven of the sections that could cut the node off. */
export const Confirmed = z.object({
  /** The desired value of each; `null` where the section was absent. */
  sections: Sections,
  versions: Versions,
  /** Sections that were tried and kept on this machine: until it starts anew, or the documents say something else than `over`. */
  kept: z.object({ bootId: Text64, at: z.number(), sections: Sections, over: Sections }).optional(),
});
export type Confirmed = z.infer<typeof Confirmed>;

/** What happened to a change that was taken back. */
export const TakenBack = z.object({
  at: z.number(),
  by: z.enum(["agent", "guard"]),
  ...WhyTakenBack.shape,
  /** At least one try to reach everybody had failed when it ended. */
  wasTried: z.boolean().optional(),
  /** Those reached before, where nobody but them was missed: without one of them the change is not to blame. */
  gateways: z.array(z.string().max(300)).max(64).optional(),
  /** How long the control plane was not reached over it, where nobody else could say why. */
  silentMs: z.number().optional(),
  /** Over the change a gateway was reached, and only the control plane was not. */
  isHeard: z.boolean().optional(),
  mode: WindowMode,
  isLocal: z.boolean(),
  versions: Versions,
  /** What could not be taken back, a line each. */
  failed: z.array(Text512).max(64),
});
export type TakenBack = z.infer<typeof TakenBack>;

/** A change that is not applied for now, or never again in this form: what was confirmed before is in force. */
export const Withheld = z.object({
  /** The desired value of each section, as it was tried. */
  guards: Sections,
  last: TakenBack,
  /** How often it was tried. */
  attempts: z.int().min(1),
  /** It is tried again when the control plane is reached; or it is not. */
  is: z.enum(["waiting", "refused"]),
});
export type Withheld = z.infer<typeof Withheld>;

/** What the guard did, for the agent to report. */
export const GuardResult = z.object({
  id: z.uuid(),
  guards: Sections,
  takenBack: TakenBack,
});
export type GuardResult = z.infer<typeof GuardResult>;

/** What is kept of confirmed commits beside the checkpoint. */
export interface CommitFiles {
  readonly confirmed: StateFile<Confirmed>;
  readonly withheld: StateFile<Withheld>;
  readonly guardResult: StateFile<GuardResult>;
}

/** The files in `dir`, where the checkpoint is too: `desired/` of the state directory. */
export function commitFiles(files: Files, dir: string, onDamage?: OnDamage): CommitFiles {
  const at = <T>(name: string, schema: z.ZodType<T>, keepsPrevious: boolean): StateFile<T> =>
    tellingDamage(
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
