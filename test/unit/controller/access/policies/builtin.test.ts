import { describe, expect, it } from "vitest";
import { builtinPolicies } from "../../../../../src/controller/access/policies/builtin.ts";
import { knownPermissions, tgrn } from "../../../../../src/controller/access/policies/permissions.ts";
import { PolicyBody } from "../../../../../src/controller/access/policies/policy.ts";
import { isAllowed } from "../../../../../src/controller/access/policies/verdict.ts";

const may = (suffix: string, permission: string) => {
  const policy = builtinPolicies.get(`builtin-tg-${suffix}`);
  return policy !== undefined && isAllowed([policy], [permission], { name: tgrn.node("a") });
};
const granted = (suffix: string) => [...knownPermissions].filter((permission) => may(suffix, permission));

describe("built-in policies", () => {
  it("are eight valid ones, each with the sign-in", () => {
    expect([...builtinPolicies.keys()]).toEqual([
      "builtin-tg-access-admin",
      "builtin-tg-admin",
      "builtin-tg-apps-user",
      "builtin-tg-monitor",
      "builtin-tg-node-admin",
      "builtin-tg-operator",
      "builtin-tg-provisioning-admin",
      "builtin-tg-upgrade-admin",
    ]);
    for (const policy of builtinPolicies.values()) {
      expect(PolicyBody.parse(policy)).toEqual(policy);
      expect(policy.resources).toEqual(["*"]);
      expect(policy.statements[0]?.actions[0]).toBe("portal::access");
    }
  });

  it.each([
    ["monitor", ["nodes::read", "audits::read:node"], ["users::read", "audits::read:user", "nodes::service:tg-ping"]],
    [
      "operator",
      ["nodes::service:node-reboot", "node-exec::compute"],
      ["nodes::service:node-upgrade", "nodes::manage"],
    ],
    [
      "node-admin",
      ["nodes::tag", "nodes::configure:network", "node-exec::modify", "alarms::modify", "repositories::modify"],
      ["nodes::configure:gateway", "nodes::delete", "nodes::service:node-upgrade", "permissions::read"],
    ],
    [
      "admin",
      ["nodes::delete", "nodes::remote-activation", "nodes::remote-execute", "users::read", "upgrade-manager::read"],
      ["users::modify", "permissions::modify", "upgrade-manager::modify", "orders::read"],
    ],
    ["access-admin", ["users::modify", "permissions::modify", "audits::read:user"], ["nodes::read"]],
    ["upgrade-admin", ["nodes::service:node-upgrade", "nodes::upgrade", "upgrade-manager::modify"], ["nodes::manage"]],
    ["provisioning-admin", ["orders::comment"], ["nodes::read"]],
  ])("%s", (suffix, does, doesNot) => {
    expect(does.filter((permission) => !may(suffix, permission))).toEqual([]);
    expect(doesNot.filter((permission) => may(suffix, permission))).toEqual([]);
  });

  it("grow from monitor over operator to node-admin", () => {
    expect(granted("operator")).toEqual(expect.arrayContaining(granted("monitor")));
    expect(granted("node-admin")).toEqual(expect.arrayContaining(granted("operator")));
    expect(granted("apps-user")).toEqual(["portal::access"]);
  });

  it("grant no capture", () => {
    for (const name of builtinPolicies.keys())
      expect(may(name.slice("builtin-tg-".length), "node-advanced::service:tg-capture")).toBe(false);
  });
});
