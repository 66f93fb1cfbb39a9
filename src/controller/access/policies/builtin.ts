import { CAPTURE_PERMISSION } from "../../../protocol/triggers/capture.ts";
import { permissions } from "./permissions.ts";
import type { Policy } from "./policy.ts";

/** Beginnings of names that no new policy may have. */
export const RESERVED_PREFIXES: readonly string[] = ["builtin-", "restricted-"];

const ids = permissions.map(({ id }) => id);
const ofFamily = (...families: readonly string[]): readonly string[] =>
  permissions.filter(({ family }) => families.includes(family)).map(({ id }) => id);
const without = (list: readonly string[], ...gone: readonly string[]): readonly string[] =>
  list.filter((id) => !gone.includes(id));

const SIGN_IN = "portal::access";
const PEOPLE = ofFamily("users", "groups", "permissions", "identity-providers");
const UPGRADE = "nodes::service:node-upgrade";

const monitor: readonly string[] = [
  SIGN_IN,
  ...without(
    ids.filter((id) => /::read(?::|$)/.test(id)),
    ...PEOPLE,
    "audits::read:user",
  ),
];
const operator: readonly string[] = [
  ...monitor,
  ...without(
    ids.filter((id) => id.startsWith("nodes::service:")),
    UPGRADE,
  ),
  "node-exec::compute",
];
const nodeAdmin: readonly string[] = [
  ...operator,
  "nodes::manage",
  "nodes::cluster",
  "nodes::tag",
  ...without(
    ids.filter((id) => id.startsWith("nodes::configure:")),
    "nodes::configure:gateway",
  ),
  ...ofFamily("node-vpn", "node-exec", "virtual-networks", "repositories"),
  "alarms::modify",
];
const admin = without(
  ids,
  CAPTURE_PERMISSION,
  ...PEOPLE.filter((id) => id.endsWith("::modify")),
  "upgrade-manager::modify",
  ...ofFamily("orders"),
);

const DEFINITIONS: readonly (readonly [name: string, description: string, actions: readonly string[]])[] = [
  ["access-admin", "Permissions, users and identity providers", [SIGN_IN, ...PEOPLE, "audits::read:user"]],
  ["admin", "Nearly everything but users, permissions and identity providers", admin],
  ["apps-user", "Use of remote-access applications", [SIGN_IN]],
  ["monitor", "Read what is not sensitive", monitor],
  ["node-admin", "Most changes of nodes, none of wide impact", nodeAdmin],
  ["operator", "Read, use tools, and first-line actions", operator],
  ["provisioning-admin", "Orders", [SIGN_IN, ...ofFamily("orders")]],
  [
    "upgrade-admin",
    "Upgrades of nodes",
    [SIGN_IN, "nodes::read", "nodes::upgrade", UPGRADE, ...ofFamily("upgrade-manager")],
  ],
];

/** Policies that every controller has, by name; they cannot be changed. */
export const builtinPolicies: ReadonlyMap<string, Policy> = new Map(
  DEFINITIONS.map(([suffix, description, actions]) => {
    const name = `builtin-tg-${suffix}`;
    const statements: Policy["statements"] = [{ effect: "allow", actions: [...new Set(actions)] }];
    return [name, { name, description, statements, resources: ["*"] }];
  }),
);
