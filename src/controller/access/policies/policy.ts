import { z } from "zod";
import { Text1024 } from "../../../protocol/values/values.ts";
import { isKnownAction, normaliseAction } from "./permissions.ts";

const NAME_RULE = "letters, digits, '.', '_' and '-', at most 128, a letter or digit first";

export const PolicyName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/, NAME_RULE)
  .meta({ examples: ["operators"] });

export const ServiceUserName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/, NAME_RULE)
  .meta({ examples: ["deploy"] });

const Action = z
  .string()
  .max(128)
  .overwrite(normaliseAction)
  .refine(isKnownAction, "not a permission of this API")
  .meta({ description: "A permission such as `nodes::read`, or a prefix of some such as `nodes::*`" });

/** `*`, or a resource name whose segments may end in `*`. */
const ResourcePattern = z
  .string()
  .max(512)
  .regex(/^(?:\*|tgrn:(?:\*|tg:(?:\*|[a-z-]*:(?:\*|[a-z-]+\*?:(?:\*|[a-z-]+\*|[a-z-]+\/(?:\*|[^\s:/*]+\*?))))))$/, {
    error: "must be '*' or a resource name such as tgrn:tg::nodes:node/<uid> or tgrn:tg::nodes:node/*",
  });

const Statement = z.strictObject({
  effect: z.enum(["allow", "deny"]),
  actions: z.array(Action).min(1).max(256),
});

/** Permissions of a caller: each statement applies to each of the resources. */
export const Policy = z
  .strictObject({
    name: PolicyName,
    description: Text1024.optional(),
    statements: z.array(Statement).min(1).max(64),
    resources: z.array(ResourcePattern).min(1).max(256),
  })
  .meta({ id: "Policy", description: "Statements, each applying to each of the resources; deny wins" });
export type Policy = z.infer<typeof Policy>;

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
