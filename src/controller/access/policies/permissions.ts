import { CAPTURE_PERMISSION } from "../../../protocol/triggers/capture.ts";
import { triggerSchemas } from "../../../protocol/triggers/schemas.ts";
import { EventName } from "../../../protocol/values/values.ts";

/** A permission of the API, spelled `family::verb` or `family::verb:object`. */
export interface Permission {
  readonly id: string;
  readonly family: string;
  readonly description: string;
  /** Other spellings of the same permission. */
  readonly aliases: readonly string[];
}

type Line = readonly [id: string, description: string, ...aliases: string[]];

const LINES: readonly Line[] = [
  ["portal::access", "Sign in interactively"],
  ["nodes::read", "Read nodes, clusters and their tags", "node::read"],
  ["nodes::manage", "Change the state, lifecycle and lock of nodes; issue licenses and agent tokens"],
  ["nodes::delete", "Remove nodes"],
  ["nodes::cluster", "Create, change and delete clusters; join them"],
  ["nodes::tag", "Change the tags of nodes and clusters"],
  ["nodes::upgrade", "Plan upgrades of nodes"],
  ["nodes::remote-activation", "Approve activation codes"],
  ["nodes::remote-execute", "Send every trigger event to nodes, except tg-capture"],
  ["nodes::configure:network", "Change the network section", "node::configure:network"],
  ["nodes::configure:gateway", "Change the gateway section"],
  ["nodes::configure:snmp", "Change the snmp section"],
  ["nodes::configure:apigw", "Change the ztnagw section and keys", "node::configure::apigw"],
  ["nodes::configure:connectors", "Change connectors", "node::configure::connectors"],
  ["nodes::configure:services", "Change services", "node::configure::services", "nodes::configure::services"],
  ["nodes::configure:thresholds", "Change the alert section", "nodes::configure::thresholds", "nodes::configure:alert"],
  ["nodes::configure:cluster", "Change the cluster section of a node"],
  ["node-vpn::read", "Read attachments to virtual networks"],
  ["node-vpn::modify", "Change attachments to virtual networks"],
  ["node-exec::read", "Read containers, volumes and limits"],
  ["node-exec::modify", "Change containers, volumes and limits"],
  ["node-exec::compute", "Start and stop containers; open terminals in them"],
  ["node-kvm::read", "Read virtual machine images"],
  ["node-kvm::modify", "Change virtual machine images"],
  [CAPTURE_PERMISSION, "Capture whole packets into files; granted only by this name"],
  ["virtual-networks::read", "Read virtual networks"],
  ["virtual-networks::modify", "Change virtual networks"],
  ["domains::read", "Read domains"],
  ["domains::modify", "Change domains"],
  ["domains::configure:gateway", "Change the gateway section of domains"],
  ["domains::configure:thresholds", "Change the alert section of domains", "domains::configure:threshold"],
  ["alarms::read", "Read alarms, their channels and suppression"],
  ["alarms::modify", "Change alarms, their channels and suppression"],
  ["alerts::read", "Read and dismiss alerts"],
  ["events::read", "Read events, audits and flow records"],
  ["audits::read:config", "Read audits of the configuration"],
  ["audits::read:user", "Read audits of authentication"],
  ["audits::read:node", "Read audits of nodes"],
  ["audits::read:flows", "Read flow records"],
  ["users::read", "Read users and service users", "user::read"],
  ["users::modify", "Change users and service users"],
  ["groups::read", "Read groups"],
  ["groups::modify", "Change groups"],
  ["permissions::read", "Read policies; simulate them"],
  ["permissions::modify", "Change and attach policies"],
  ["identity-providers::read", "Read identity providers"],
  ["identity-providers::modify", "Change identity providers"],
  ["applications::read", "Read applications"],
  ["applications::modify", "Change applications"],
  ["certificates::read", "Read certificates"],
  ["certificates::modify", "Change certificates"],
  ["repositories::read", "Read and pull container images"],
  ["repositories::modify", "Push and remove container images"],
  ["orders::read", "Read orders"],
  ["orders::modify", "Change orders"],
  ["orders::comment", "Comment orders"],
  ["orgs::read", "Read the organization"],
  ["documents::read", "Read documents"],
  ["documents::modify", "Change documents"],
  ["support::modify", "Change the access of support"],
  ["observability::read", "Read telemetry exporters"],
  ["observability::modify", "Change telemetry exporters"],
  ["upgrade-manager::read", "Read upgrade campaigns"],
  ["upgrade-manager::modify", "Change upgrade campaigns"],
];

const EVENT_PREFIX = "nodes::service:";
/** Permissions of single trigger events that this version knows; a policy may name others. */
const eventLines: readonly Line[] = Object.keys(triggerSchemas)
  .filter((event) => !CAPTURE_PERMISSION.endsWith(`:${event}`))
  .sort()
  .map((event) => [`${EVENT_PREFIX}${event}`, `Send the trigger event ${event}`]);

/** All permissions, with those of the known trigger events; `nodes::service:` also takes any other event name. */
export const permissions: readonly Permission[] = [...LINES, ...eventLines].map(([id, description, ...aliases]) => ({
  id,
  family: id.slice(0, id.indexOf("::")),
  description,
  aliases,
}));

export const knownPermissions: ReadonlySet<string> = new Set(permissions.map(({ id }) => id));

const IDS_BY_ALIAS: ReadonlyMap<string, string> = new Map(
  permissions.flatMap(({ id, aliases }) => aliases.map((alias) => [alias, id] as const)),
);

/** Returns the identifier of an action in another spelling, otherwise the action itself. Idempotent. */
export const canonicalAction = (action: string): string => IDS_BY_ALIAS.get(action) ?? action;

/** Reports whether an action is the exact identifier or an alias of a permission. */
export function isKnownAction(action: string): boolean {
  if (knownPermissions.has(canonicalAction(action))) return true;
  return action.startsWith(EVENT_PREFIX) && EventName.safeParse(action.slice(EVENT_PREFIX.length)).success;
}

/** Resource of operations that concern no single object: creating one, or the organization as a whole. */
export const ORGANIZATION = "*";

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

/** Prefix of the names of both kinds that have tags: nodes and clusters. */
export const TAGGED = "tgrn:tg::nodes:";

/** Returns a name that only patterns for the whole kind cover. */
export const anyOf = (kind: string): string => `${kind}*`;
