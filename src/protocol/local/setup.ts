import { z } from "zod";
import { NodeIdentity } from "../documents/claims.ts";
import { NetworkSection } from "../sections/network/network.ts";
import { JsonObject, Text256, Text4096 } from "../values/values.ts";

/** Bounds on a file of `holdfast setup --file`. */
export const SETUP_LIMITS = { maxBytes: 256 * 1024, maxDepth: 16 } as const;

const Proxy = z
  .string()
  .max(512)
  .refine((text) => URL.canParse(text) && new URL(text).protocol === "http:", "must be an http:// proxy address");

/** Members that have a field of their own beside `settings`. */
const OWN = ["network", "proxy", "noProxy"] as const;

/** Input of `holdfast setup --file`. Every member is optional; null removes a setting. */
export const SetupFile = z
  .strictObject({
    network: NetworkSection.nullable()
      .optional()
      .meta({ description: "The section network until the control plane gives one; of an appliance only" }),
    proxy: Proxy.nullable().optional().meta({ description: "An http:// proxy for the way to the control plane" }),
    noProxy: z.array(Text256).max(256).nullable().optional(),
    license: z
      .string()
      .min(1)
      .max(8192)
      .optional()
      .meta({ description: "The license itself, a secret until it is used" }),
    licenseFile: z
      .string()
      .max(1024)
      .regex(/^\//, "must be an absolute path")
      .optional()
      .meta({ description: "A file with the license, instead of the license itself" }),
    profile: z
      .enum(["appliance", "agent"])
      .optional()
      .meta({ description: "What this machine is meant to be; a license for the other is refused" }),
    settings: JsonObject.optional().meta({
      description: "Other members of agent.json, each put in the place of its own",
    }),
  })
  .superRefine(({ license, licenseFile, profile, network, settings }, context) => {
    const wrong = (path: string[], message: string): void => context.addIssue({ code: "custom", path, message });
    if (license !== undefined && licenseFile !== undefined) wrong(["licenseFile"], "has no place beside license");
    if (profile === "agent" && network) wrong(["network"], "is of an appliance, and profile says agent");
    for (const name of OWN) {
      if (settings !== undefined && Object.hasOwn(settings, name)) wrong(["settings", name], "belongs beside settings");
    }
  });
export type SetupFile = z.infer<typeof SetupFile>;

/** Result of each part. */
export const SetupStep = z.object({
  step: z.enum(["settings", "network", "register", "erase", "online"]),
  state: z.enum(["done", "unchanged", "would-do", "skipped", "failed"]),
  message: Text4096,
});
export type SetupStep = z.infer<typeof SetupStep>;

/** Output of `holdfast setup --file --json`. */
export const SetupReport = z.object({
  schema: z.literal(1),
  steps: z.array(SetupStep).max(16),
  node: NodeIdentity.nullable(),
});
export type SetupReport = z.infer<typeof SetupReport>;
