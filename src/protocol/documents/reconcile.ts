import { z } from "zod";
import type { JsonLimits } from "../../lib/formats/strict-json.ts";
import { DocumentName } from "./claims.ts";
import { Config, NodeDocument } from "./documents.ts";
import { SectionName, sectionNames } from "../sections/sections.ts";
import { JsonObject, Text64, Text512, Text1024, UnixMilliseconds, Version } from "../values/values.ts";

/** Maximum length of a step's detail, in characters. */
export const MAX_DETAIL = 512;

/** Problem with one item or field of a section; `path` starts with the section's name. */
export const Issue = z.object({
  path: Text512,
  code: Text64,
  message: Text1024,
});
export type Issue = z.infer<typeof Issue>;

/**
 * A step for output: the operation, its object, whether it could disconnect the node, and whether it only removes something. `detail` is
 * text about the object, the change and its effect on flows, without secrets.
 */
export const ShownStep = z.object({
  kind: z.string(),
  subject: z.string(),
  guarded: z.boolean(),
  removes: z.boolean().optional(),
  detail: z.string().max(MAX_DETAIL).optional(),
});
export type ShownStep = z.infer<typeof ShownStep>;

/** Planned steps of one section. `total` counts all steps; only the first are listed. */
export const SectionPlan = z.object({
  section: Text64,
  steps: z.array(ShownStep),
  total: Version,
  issues: z.array(Issue),
  /** Reason why the section could not be planned. */
  error: z.object({ code: Text64, message: z.string() }).optional(),
  unsupported: z.string().optional(),
});
export type SectionPlan = z.infer<typeof SectionPlan>;

/** A configuration to plan; the node's applied one if absent. */
export const PlanRequest = z.object({ config: Config.optional() });
export type PlanRequest = z.infer<typeof PlanRequest>;

const StrictConfig = z.strictObject(Config.shape);
const recordFields = Object.fromEntries(Object.keys(NodeDocument.shape).map((name) => [name, z.unknown().optional()]));
const bareSections = Object.fromEntries(sectionNames.map((name) => [name, JsonObject.optional()]));

/**
 * A configuration to plan, written by a person: as `config`, alone or in a node document, or as bare sections. Empty means the applied one.
 * Unknown fields and sections are refused.
 */
export const PlanDocument = z
  .strictObject({ ...bareSections, ...recordFields, config: StrictConfig.optional() })
  .meta({
    id: "Plan",
    description: "Body of `plan`: `config`, a whole node document, or sections; none for what is in force",
  })
  .transform(({ config, ...rest }, context): PlanRequest => {
    if (config !== undefined) return { config };
    if (Object.keys(rest).length === 0) return {};
    const sections = StrictConfig.safeParse(rest);
    if (sections.success) return { config: sections.data };
    context.addIssue({ code: "custom", message: "needs a configuration below config, or sections and nothing else" });
    return z.NEVER;
  });

export const PLAN_REQUEST_LIMITS: JsonLimits = { maxBytes: 16 * 1024 * 1024, maxDepth: 32 };

/**
 * The steps that a configuration would take on this machine. Steps that only remove something come first, from the last section to the first,
 * then the others from the first to the last.
 */
export const PlanReport = z.object({ schema: z.literal(1), sections: z.array(SectionPlan), notes: z.array(Issue) });
export type PlanReport = z.infer<typeof PlanReport>;

/** Requests the rollback to the previous document; with `plan` only its steps. */
export const RollbackRequest = z
  .strictObject({ document: DocumentName.default("node"), plan: z.boolean().default(false) })
  .meta({ id: "Rollback", description: "Body of `rollback`" });
export type RollbackRequest = z.infer<typeof RollbackRequest>;

/** Versions of a rollback; with `plan` it was only planned. */
export const RollbackReport = z.object({
  schema: z.literal(1),
  document: DocumentName,
  from: Version,
  to: Version,
  plan: PlanReport.optional(),
});
export type RollbackReport = z.infer<typeof RollbackReport>;

/** Requests the applied configuration, or one section of it. */
export const ConfigShowRequest = z
  .strictObject({ section: SectionName.optional() })
  .meta({ id: "ConfigShow", description: "Body of `config-show`" });
export type ConfigShowRequest = z.infer<typeof ConfigShowRequest>;

/**
 * A deviation from the desired state: its reason, start, last attempt and next attempt. A notice deviates from nothing; it explains an
 * unexpected effect of the applied configuration.
 */
export const Reason = z.object({
  section: Text64,
  item: Text512.optional(),
  code: Text64,
  message: z.string(),
  since: UnixMilliseconds,
  lastAttempt: UnixMilliseconds,
  nextAttempt: UnixMilliseconds.optional(),
  notice: z.literal(true).optional(),
});
export type Reason = z.infer<typeof Reason>;

export const WhyReport = z.object({ schema: z.literal(1), reasons: z.array(Reason) });
export type WhyReport = z.infer<typeof WhyReport>;
