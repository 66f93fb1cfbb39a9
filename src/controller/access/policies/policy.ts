import { z } from "zod";
import { Text1024 } from "../../../protocol/values/values.ts";
import { Conditions } from "./conditions.ts";
import { isKnownAction } from "./permissions.ts";

const NAME_RULE = "letters, digits, '.', '_' and '-', at most 128, a letter or digit first";
const MAX_POLICY_CHARACTERS = 65_536;

export const PolicyName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/, NAME_RULE)
  .meta({ examples: ["operators"] });

/** Name of a service user that is created. */
export const NewServiceUserName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9-]{0,127}$/, "letters, digits and '-', at most 128, a letter or digit first")
  .meta({ examples: ["deploy"] });

/** Name of a stored service user; one of an earlier version may have `.` and `_`. */
export const ServiceUserName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/, NAME_RULE)
  .meta({ examples: ["deploy"] });

const Effect = z.enum(["allow", "deny", "noop"]).meta({ description: "`noop` has no effect" });

const Action = z
  .string()
  .max(128)
  .refine(isKnownAction, "is not a permission of this API: GET /v2/permission lists them; wildcards are not allowed")
  .meta({ description: "A permission such as `nodes::read`, kept as written" });

/** `*`, a resource name, or the names of one type, which end in `/*`. */
const ResourcePattern = z
  .string()
  .max(512)
  .regex(/^(?:\*|tgrn:[^\s*]+(?:\/\*)?)$/, {
    error: "must be '*' or a resource name such as tgrn:tg::nodes:node/<uid> or tgrn:tg::nodes:node/*",
  });

const createdAt = z.int().meta({ description: "Unix seconds; set by the control plane" });

/** A stored policy. One of an earlier version may have actions and resources that a new one may not. */
export const Policy = z.object({
  name: PolicyName,
  description: z.string().optional(),
  statements: z.array(z.object({ effect: Effect, actions: z.array(z.string()) })),
  resources: z.array(z.string()),
  conditions: Conditions.nullish(),
  created_at: createdAt.optional(),
});
export type Policy = z.infer<typeof Policy>;

/** A policy as it is written: each statement applies to each of the resources that meet the conditions. */
export const PolicyBody = z
  .strictObject({
    name: PolicyName,
    description: Text1024.optional(),
    statements: z
      .array(z.strictObject({ effect: Effect, actions: z.array(Action).min(1).max(256) }))
      .min(1)
      .max(64),
    resources: z.array(ResourcePattern).min(1).max(256),
    conditions: Conditions.nullish(),
    created_at: createdAt.optional(),
  })
  .meta({
    id: "Policy",
    description: "Statements, each applying to each of the resources that meet the conditions; deny wins",
  });
export type PolicyBody = z.infer<typeof PolicyBody>;

/** Returns why a policy that is otherwise valid is too large; undefined if it is not. */
export function sizeProblem(policy: Omit<PolicyBody, "name">): string | undefined {
  if (JSON.stringify(policy).length <= MAX_POLICY_CHARACTERS) return undefined;
  return `body: has more than ${MAX_POLICY_CHARACTERS} characters as JSON; make several policies of it`;
}

/** Reports whether a policy of this name cannot be attached to a user. */
export const isRestricted = (name: string): boolean => name.startsWith("restricted-");

/** Grants all permissions that wildcards cover, on all resources. */
export const ADMIN_POLICY: Policy = {
  name: "admin",
  description: "Everything",
  statements: [{ effect: "allow", actions: ["*"] }],
  resources: ["*"],
};

/** Holder of a key or credential, with its policies. */
export interface Grant {
  readonly name: string;
  readonly policies: readonly Policy[];
}
