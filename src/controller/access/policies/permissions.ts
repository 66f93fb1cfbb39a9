import { CAPTURE_PERMISSION } from "../../../protocol/triggers/capture.ts";
import { EventName } from "../../../protocol/values/values.ts";
import type { Policy } from "./policy.ts";

/** All permissions of the API, spelled `area::verb` or `area::verb:object`; `nodes::service:` also takes any event name. */
export const knownPermissions: ReadonlySet<string> = new Set([
  "nodes::read",
  "nodes::manage",
  "nodes::delete",
  "nodes::cluster",
  "nodes::remote-execute",
  "nodes::remote-activation",
  "nodes::configure:alert",
  "nodes::configure:apigw",
  "nodes::configure:bgp",
  "nodes::configure:cluster",
  "nodes::configure:connectors",
  "nodes::configure:gateway",
  "nodes::configure:network",
  "nodes::configure:services",
  "nodes::configure:snmp",
  "nodes::configure:vpn",
  "nodes::service:datastore-manager",
  CAPTURE_PERMISSION,
  "node-exec::read",
  "node-exec::modify",
  "node-exec::compute",
  "alerts::read",
  "events::read",
  "alarms::read",
  "alarms::modify",
  "users::read",
  "users::modify",
  "groups::read",
  "groups::modify",
  "permissions::read",
  "permissions::modify",
  "identity-providers::read",
  "identity-providers::modify",
  "repositories::read",
  "repositories::modify",
]);

/** Permissions that no wildcard grants, not even an administrator's. A policy must name them. */
const GRANTED_BY_NAME: ReadonlySet<string> = new Set([CAPTURE_PERMISSION]);

const OPEN_PREFIX = "nodes::service:";
const ACTION = /^([a-z][a-z-]*)::([a-z][a-z-]*)(?:::?([A-Za-z0-9][A-Za-z0-9_.-]*\*?|\*))?$/;
const AREA_WILDCARD = /^([a-z][a-z-]*)::\*$/;

/**
 * Normalizes the spelling of an action: `node::configure::x`, `node::configure:x` and `nodes::configure::x` become `nodes::configure:x`.
 * Idempotent; returns unknown forms unchanged.
 */
export function normaliseAction(action: string): string {
  const wildcard = AREA_WILDCARD.exec(action);
  if (wildcard !== null) return `${areaOf(wildcard[1] ?? "")}::*`;
  const parts = ACTION.exec(action);
  if (parts === null) return action;
  const [, area = "", verb = "", object] = parts;
  return `${areaOf(area)}::${verb}${object === undefined ? "" : `:${object}`}`;
}

const areaOf = (area: string): string => (area === "node" ? "nodes" : area);

/** Reports whether a normalized action is a known permission, or a wildcard that matches at least one. */
export function isKnownAction(action: string): boolean {
  if (action === "*" || knownPermissions.has(action)) return true;
  if (action.endsWith("*")) {
    if (normaliseAction(action) !== action || !(AREA_WILDCARD.test(action) || ACTION.test(action))) return false;
    const prefix = action.slice(0, -1);
    return prefix.startsWith(OPEN_PREFIX) || [...knownPermissions].some((known) => known.startsWith(prefix));
  }
  return action.startsWith(OPEN_PREFIX) && EventName.safeParse(action.slice(OPEN_PREFIX.length)).success;
}

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

/** Builds resource names by kind, for example `tgrn:tg::nodes:node/<uid>`. */
export const tgrn = {
  node: (uid: string) => `tgrn:tg::nodes:node/${uid}`,
  cluster: (fqdn: string) => `tgrn:tg::nodes:cluster/${fqdn}`,
  policy: (name: string) => `tgrn:tg::permissions:policy/${name}`,
  repository: (name: string) => `tgrn:tg::repositories:repository/${name}`,
  serviceUser: (name: string) => `tgrn:tg::users:service-user/${name}`,
} as const;

/** Returns a name that only patterns for the whole kind cover; creating a resource requires the permission on all of them. */
export const anyOf = (kind: string): string => `${kind}*`;
