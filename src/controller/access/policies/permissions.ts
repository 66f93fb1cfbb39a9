import { CAPTURE_PERMISSION } from "../../../protocol/triggers/capture.ts";
import { EventName } from "../../../protocol/values/values.ts";

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
  "domains::read",
  "domains::configure:thresholds",
  "domains::configure:gateway",
  "domains::modify",
  "alerts::read",
  "events::read",
  "audits::read:flows",
  "audits::read:node",
  "audits::read:user",
  "audits::read:config",
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
  "certificates::read",
  "certificates::modify",
  "repositories::read",
  "repositories::modify",
]);

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

/** Builds resource names by kind, for example `tgrn:tg::nodes:node/<uid>`. */
export const tgrn = {
  node: (uid: string) => `tgrn:tg::nodes:node/${uid}`,
  cluster: (fqdn: string) => `tgrn:tg::nodes:cluster/${fqdn}`,
  organization: (uid: string) => `tgrn:tg::orgs:org/${uid}`,
  domain: (name: string) => `tgrn:tg::domains:domain/${name}`,
  policy: (name: string) => `tgrn:tg::permissions:policy/${name}`,
  certificate: (fqdn: string) => `tgrn:tg::certificates:certificate/${fqdn}`,
  repository: (name: string) => `tgrn:tg::repositories:repository/${name}`,
  serviceUser: (name: string) => `tgrn:tg::users:service-user/${name}`,
} as const;

/** Returns a name that only patterns for the whole kind cover; creating a resource requires the permission on all of them. */
export const anyOf = (kind: string): string => `${kind}*`;
