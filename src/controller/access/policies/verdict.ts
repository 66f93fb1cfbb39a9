import type { Policy } from "./policy.ts";
import { anyOf } from "./permissions.ts";
import { CAPTURE_PERMISSION } from "../../../protocol/triggers/capture.ts";

/** Reports whether a normalized action, possibly a wildcard, covers a permission. */
function actionCovers(action: string, permission: string): boolean {
  return action.endsWith("*") ? permission.startsWith(action.slice(0, -1)) : action === permission;
}

/**
 * Reports whether a resource pattern covers a resource name. Segments are separated by `:`. A segment that ends in `*` matches any segment
 * with this prefix; as the last one it also matches everything after it.
 */
export function resourceCovers(pattern: string, resource: string): boolean {
  const wanted = pattern.split(":");
  const given = resource.split(":");
  if (wanted.length > given.length) return false;
  return wanted.every((segment, index) => {
    const isLast = index === wanted.length - 1;
    const actual = isLast ? given.slice(index).join(":") : (given[index] ?? "");
    return segment.endsWith("*") ? actual.startsWith(segment.slice(0, -1)) : actual === segment;
  });
}

/** Evaluates policies for one permission on one resource: a matching deny overrides every allow; `silent` means no match. */
function judge(policies: readonly Policy[], permission: string, resource: string): "allow" | "deny" | "silent" {
  let verdict: "allow" | "silent" = "silent";
  for (const policy of policies) {
    if (!policy.resources.some((pattern) => resourceCovers(pattern, resource))) continue;
    for (const statement of policy.statements) {
      if (!concerns(statement, permission)) continue;
      if (statement.effect === "deny") return "deny";
      verdict = "allow";
    }
  }
  return verdict;
}

/** Reports whether a statement matches a permission; a deny wildcard also matches permissions granted by name only. */
function concerns({ effect, actions }: Policy["statements"][number], permission: string): boolean {
  const isByName = effect === "allow" && GRANTED_BY_NAME.has(permission);
  return actions.some((action) => (isByName ? action === permission : actionCovers(action, permission)));
}

/**
 * Reports whether one of several alternative permissions, most specific first, is granted on a resource. The first one that a policy
 * matches decides, so that a specific deny overrides a broader allow. Denies by default.
 */
export function isAllowed(policies: readonly Policy[], alternatives: readonly string[], resource: string): boolean {
  const verdicts = alternatives.map((permission) => judge(policies, permission, resource));
  return verdicts.find((verdict) => verdict !== "silent") === "allow";
}

/** Returns the scope of a permission over one kind of resource: all of it, some (check each), or none. */
export function reachOf(policies: readonly Policy[], permission: string, kind: string): "all" | "some" | "none" {
  const grants = policies.filter(
    (policy) => hasEffect(policy, "allow", permission) && policy.resources.some((pattern) => touches(pattern, kind)),
  );
  if (grants.length === 0) return "none";
  const denials = policies.filter((policy) => hasEffect(policy, "deny", permission));
  const every = anyOf(kind);
  if (denials.some((policy) => policy.resources.some((pattern) => resourceCovers(pattern, every)))) return "none";
  return denials.length === 0 && judge(grants, permission, every) === "allow" ? "all" : "some";
}

/** Reports whether a pattern covers any resource of a kind. */
function touches(pattern: string, kind: string): boolean {
  const wanted = pattern.split(":");
  const given = kind.split(":");
  const last = wanted.length - 1;
  const isAlong = wanted.slice(0, last).every((segment, index) => resourceCovers(segment, given[index] ?? ""));
  if (!isAlong || wanted.length > given.length) return false;
  const segment = wanted[last] ?? "";
  const rest = given.slice(last).join(":");
  return segment.startsWith(rest) || (segment.endsWith("*") && rest.startsWith(segment.slice(0, -1)));
}

function hasEffect(policy: Policy, effect: "allow" | "deny", permission: string): boolean {
  return policy.statements.some((statement) => statement.effect === effect && concerns(statement, permission));
}

/** Permissions that no wildcard grants, not even an administrator's. A policy must name them. */
const GRANTED_BY_NAME: ReadonlySet<string> = new Set([CAPTURE_PERMISSION]);
