import { CAPTURE_PERMISSION } from "../../../protocol/triggers/capture.ts";
import { testOf, type Tags } from "./conditions.ts";
import { anyOf, canonicalAction, TAGGED } from "./permissions.ts";
import type { Policy } from "./policy.ts";

/** A resource that a permission is decided for. */
export interface Resource {
  readonly name: string;
  /** Tags that count for conditions; undefined if it has none, or if they are unknown. */
  readonly tags?: Tags | undefined;
}

export type Effect = "allow" | "deny";
/** A decision; `none` refuses, too: no policy allows the operation. */
export type Decision = Effect | "none";

/** Policies reduced to the statements about some permissions, so that many resources can be judged. */
export interface Rules {
  /** Whether the decision may depend on tags. */
  readonly needsTags: boolean;
  /** Decides on one resource: an applicable deny overrides every allow. */
  decide(resource: Resource): Decision;
  /** Returns the scope over one kind of resource, for example `tgrn:tg::nodes:node/`: all of it, some (check each), or none. */
  reach(kind: string): "all" | "some" | "none";
}

/** Permissions that no wildcard grants, not even an administrator's. A policy must name them. */
const GRANTED_BY_NAME: ReadonlySet<string> = new Set([CAPTURE_PERMISSION]);

/** Reports whether an action, in any spelling and possibly a wildcard of an earlier version, covers a permission. */
function actionCovers(action: string, permission: string, effect: Effect): boolean {
  if (!action.endsWith("*")) return canonicalAction(action) === permission;
  return permission.startsWith(action.slice(0, -1)) && !(effect === "allow" && GRANTED_BY_NAME.has(permission));
}

/** Returns the effect of a statement on a permission; undefined if it does not concern it, or is `noop`. */
export function effectOn({ effect, actions }: Policy["statements"][number], permission: string): Effect | undefined {
  if (effect === "noop") return undefined;
  return actions.some((action) => actionCovers(action, permission, effect)) ? effect : undefined;
}

/**
 * Reports whether a resource pattern covers a resource name: `*` covers everything, and a name only itself. A final `*` covers every name
 * with what precedes it. Policies of earlier versions may have a `*` at the end of any segment, which are separated by `:`.
 */
export function resourceCovers(pattern: string, resource: string): boolean {
  const star = pattern.indexOf("*");
  if (star === -1) return pattern === resource;
  if (star === pattern.length - 1) return resource.startsWith(pattern.slice(0, -1));
  const wanted = pattern.split(":");
  const given = resource.split(":");
  if (wanted.length > given.length) return false;
  return wanted.every((segment, index) => {
    const isLast = index === wanted.length - 1;
    const actual = isLast ? given.slice(index).join(":") : (given[index] ?? "");
    return segment.endsWith("*") ? actual.startsWith(segment.slice(0, -1)) : actual === segment;
  });
}

/**
 * Reports whether the conditions of a policy hold for a resource. They never hold for kinds without tags. Undefined if the resource may
 * have tags that are unknown: nothing is allowed then, and a deny applies.
 */
export function conditionsHold(test: ReturnType<typeof testOf>, { name, tags }: Resource): boolean | undefined {
  if (test === undefined) return true;
  if (tags !== undefined) return test(tags);
  return name.startsWith(TAGGED) ? undefined : false;
}

interface Rule {
  readonly resources: ReadonlySet<string>;
  /** Those of the resources that cover more than themselves. */
  readonly patterns: readonly string[];
  readonly test: ReturnType<typeof testOf>;
}

const coversIn = ({ resources, patterns }: Rule, name: string): boolean =>
  resources.has(name) || patterns.some((pattern) => resourceCovers(pattern, name));

/** Returns the rules about permissions any of which is sufficient; a deny of any refuses. Pure. */
export function rulesFor(policies: readonly Policy[], permissions: readonly string[]): Rules {
  const allows: Rule[] = [];
  const denies: Rule[] = [];
  for (const { statements, resources, conditions } of policies) {
    const effects = new Set(
      statements.flatMap((statement) => permissions.map((permission) => effectOn(statement, permission))),
    );
    const patterns = resources.filter((resource) => resource.includes("*"));
    const rule = { resources: new Set(resources), patterns, test: testOf(conditions) };
    if (effects.has("allow")) allows.push(rule);
    if (effects.has("deny")) denies.push(rule);
  }
  return {
    needsTags: allows.length > 0 && [...allows, ...denies].some(({ test }) => test !== undefined),
    decide(resource) {
      const { name } = resource;
      if (denies.some((rule) => coversIn(rule, name) && conditionsHold(rule.test, resource) !== false)) return "deny";
      return allows.some((rule) => coversIn(rule, name) && conditionsHold(rule.test, resource) === true)
        ? "allow"
        : "none";
    },
    reach(kind) {
      const every = anyOf(kind);
      const isCertain = (rule: Rule): boolean => rule.test === undefined && coversIn(rule, every);
      const isTaggable = kind.startsWith(TAGGED) || TAGGED.startsWith(kind);
      const touching = ({ resources, test }: Rule): boolean =>
        (test === undefined || isTaggable) && [...resources].some((pattern) => touches(pattern, kind));
      if (!allows.some(touching) || denies.some(isCertain)) return "none";
      return !denies.some(touching) && allows.some(isCertain) ? "all" : "some";
    },
  };
}

/** Reports whether one of several permissions is granted on a resource. */
export function isAllowed(policies: readonly Policy[], permissions: readonly string[], resource: Resource): boolean {
  return rulesFor(policies, permissions).decide(resource) === "allow";
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
