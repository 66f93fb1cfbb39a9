import { testOf } from "./conditions.ts";
import type { Policy } from "./policy.ts";
import { conditionsHold, effectOn, resourceCovers, type Decision, type Effect, type Resource } from "./verdict.ts";

/** A policy and how its holder got it. */
export interface HeldPolicy {
  readonly policy: Policy;
  readonly source: string;
}

/** A statement that takes part in a decision; `statement` counts from 0. */
export interface Match {
  readonly policy: string;
  readonly source: string;
  readonly statement: number;
  readonly effect: Effect;
}

/** A policy without a part in a decision, and the first reason of it. */
export interface Skip {
  readonly policy: string;
  readonly reason: "resource" | "condition" | "action";
}

/** Decides on one permission on one resource, and lists the parts of the policies in it. Pure. */
export function simulate(
  held: readonly HeldPolicy[],
  permission: string,
  resource: Resource,
): { readonly decision: Decision; readonly matched: readonly Match[]; readonly skipped: readonly Skip[] } {
  const matched: Match[] = [];
  const skipped: Skip[] = [];
  for (const { policy, source } of held) {
    const found = matchesIn(policy, permission, resource);
    if (typeof found === "string") skipped.push({ policy: policy.name, reason: found });
    else for (const match of found) matched.push({ policy: policy.name, source, ...match });
  }
  const has = (effect: Effect): boolean => matched.some((match) => match.effect === effect);
  return { decision: has("deny") ? "deny" : has("allow") ? "allow" : "none", matched, skipped };
}

function matchesIn(
  { statements, resources, conditions }: Policy,
  permission: string,
  resource: Resource,
): readonly Pick<Match, "statement" | "effect">[] | Skip["reason"] {
  if (!resources.some((pattern) => resourceCovers(pattern, resource.name))) return "resource";
  const holds = conditionsHold(testOf(conditions), resource);
  if (holds === false) return "condition";
  const found = statements.flatMap((one, statement) => {
    const effect = effectOn(one, permission);
    return effect === undefined ? [] : [{ statement, effect }];
  });
  if (found.length === 0) return "action";
  // Unknown tags allow nothing.
  const sure = found.filter(({ effect }) => holds === true || effect === "deny");
  return sure.length === 0 ? "condition" : sure;
}
