import { z } from "zod";
import { Requires } from "../../values/features.ts";
import type { JsonObject } from "../../values/values.ts";
import { closed, FlagOrUnset, isSet, NodeRef, oneLine, says, textOrUnset } from "../common/fields.ts";
import { isObject } from "../common/forms.ts";
import { configIssue, type ConfigIssue } from "../common/issue.ts";
import { LinkRef } from "../network/fields.ts";

/** Most thresholds of a section. */
const MAX_THRESHOLDS = 1000;
/** Longest window of a threshold: 30 days. */
const MAX_WINDOW = { minutes: 43_200, hours: 720 } as const;

const TELEMETRY = [
  "cpu",
  "ram",
  "disk",
  "heap",
  "embflows",
  "latency",
  "bandwidthIn",
  "bandwidthOut",
  "tcpResets",
  "vpnFlows",
] as const;

/** The form of `target` of each metric that has one. */
const TARGETS: ReadonlyMap<unknown, z.ZodType<string>> = new Map([
  ["latency", NodeRef],
  ["bandwidthIn", LinkRef],
  ["bandwidthOut", LinkRef],
]);

const number = says("must be a number");

/** A rule over one metric, evaluated over a window of samples that are taken each minute. */
const Threshold = closed({
  id: oneLine(128).meta({ description: "Identity; a rule of the domain with the same id is overridden" }),
  name: oneLine(256).meta({ description: "Shown in events" }),
  telemetry: z.enum(TELEMETRY, says(`must be one of ${TELEMETRY.join(", ")}`)).meta({
    description:
      "Metric: cpu, ram, disk and heap in percent, latency in ms, bandwidthIn and bandwidthOut in Mbit/s, the others are counts",
  }),
  max: z.number(number).meta({ description: "Fires above this, in the unit of the metric" }),
  exceededWindow: z
    .number(number)
    .min(1, says("must be at least 1"))
    .meta({ description: "Length of the window; at most 30 days" }),
  exceededWindowUnit: z.enum(["minutes", "hours"], says("must be one of minutes, hours")),
  target: textOrUnset(oneLine(253)).meta({
    description: "Node of latency; interface of bandwidthIn and bandwidthOut; not set with other metrics",
  }),
  command: textOrUnset(oneLine(1024)).meta({ description: "Kept and not used" }),
  requires: Requires,
}).superRefine(checkThreshold, { when: ({ value }) => isObject(value) });

/** The section `alert` of the configuration, as strict as the API is. */
export const AlertSection: z.ZodType<JsonObject> = closed({
  enabled: FlagOrUnset.meta({ description: "Use these thresholds beside those of the domain; false by default" }),
  thresholds: z
    .array(Threshold, says("must be an array"))
    .max(MAX_THRESHOLDS, says(`must be at most ${MAX_THRESHOLDS}`))
    .nullish(),
}).superRefine(
  ({ thresholds }, context) => {
    if (!Array.isArray(thresholds)) return;
    const seen = new Map<string, number>();
    thresholds.forEach((threshold: unknown, at) => {
      const id = isObject(threshold) ? threshold["id"] : undefined;
      if (typeof id !== "string") return;
      const first = seen.get(id);
      if (first === undefined) seen.set(id, at);
      else
        context.addIssue({
          code: "custom",
          path: ["thresholds", at, "id"],
          message: `is the id of thresholds.${first} already`,
        });
    });
  },
  { when: ({ value }) => isObject(value) },
);

function checkThreshold(
  { telemetry, target, exceededWindow, exceededWindowUnit }: JsonObject,
  context: z.RefinementCtx,
): void {
  const add = (field: string, message: string): void => context.addIssue({ code: "custom", path: [field], message });
  const Target = TARGETS.get(telemetry);
  if (Target !== undefined && !isSet(target)) add("target", `is required with telemetry ${String(telemetry)}`);
  else if (Target !== undefined && typeof target === "string") {
    for (const { message } of Target.safeParse(target).error?.issues ?? []) add("target", message);
  } else if (isSet(target)) {
    add("target", `has no place beside this telemetry: only ${[...TARGETS.keys()].join(", ")} have a target`);
  }
  const most =
    exceededWindowUnit === "hours" || exceededWindowUnit === "minutes" ? MAX_WINDOW[exceededWindowUnit] : undefined;
  if (most !== undefined && typeof exceededWindow === "number" && exceededWindow > most) {
    add("exceededWindow", `must be at most ${most} ${String(exceededWindowUnit)}, which are 30 days`);
  }
}

const PERCENTAGES: ReadonlySet<unknown> = new Set(["cpu", "ram", "disk", "heap"]);

/** Returns a notice for each threshold whose `max` is no percentage although its metric is one. */
export function alertNotices(section: JsonObject | undefined): ConfigIssue[] {
  const { thresholds } = section ?? {};
  if (!Array.isArray(thresholds)) return [];
  return thresholds.flatMap((threshold: unknown, at) => {
    if (!isObject(threshold) || !PERCENTAGES.has(threshold["telemetry"])) return [];
    const { max } = threshold;
    if (typeof max !== "number" || (max >= 0 && max <= 100)) return [];
    const fate = max < 0 ? "always fires" : "never fires";
    const place = { path: `alert.thresholds.${at}`, id: String(threshold["id"]).slice(0, 128) };
    return [configIssue("E_RANGE", place, "max", `${max} is outside of a percentage, and ${fate}`)];
  });
}
