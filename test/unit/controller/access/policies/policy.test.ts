import { describe, expect, it } from "vitest";
import { ADMIN_POLICY, Policy } from "../../../../../src/controller/access/policies/policy.ts";

const base = { name: "p", statements: [{ effect: "allow", actions: ["nodes::read"] }], resources: ["*"] };

describe("a policy", () => {
  it("keeps its actions in their one spelling", () => {
    const parsed = Policy.parse({ ...base, statements: [{ effect: "deny", actions: ["node::configure::network"] }] });
    expect(parsed.statements[0]?.actions).toEqual(["nodes::configure:network"]);
    expect(Policy.parse(parsed)).toEqual(parsed);
    expect(Policy.parse(ADMIN_POLICY)).toEqual(ADMIN_POLICY);
  });

  it.each([
    "*",
    "tgrn:*",
    "tgrn:tg::nodes:node/*",
    "tgrn:tg::nodes:*",
    "tgrn:tg::access-apps:app/x1",
    "tgrn:tg::nodes:cluster/a.b.c",
  ])("takes the resource %s", (resource) =>
    expect(Policy.safeParse({ ...base, resources: [resource] }).success).toBe(true),
  );

  it.each([
    "",
    "node/a",
    "tgrn:",
    "tgrn:tg::nodes:node/",
    "tgrn:tg::nodes:node/a b",
    "tgrn:tg::nodes:node/a*b",
    "urn:x",
    "**",
  ])("refuses the resource '%s'", (resource) =>
    expect(Policy.safeParse({ ...base, resources: [resource] }).success).toBe(false),
  );

  it("refuses what is missing or unknown", () => {
    expect(Policy.safeParse({ ...base, resources: [] }).success).toBe(false);
    expect(Policy.safeParse({ ...base, statements: [] }).success).toBe(false);
    expect(Policy.safeParse({ ...base, extra: 1 }).success).toBe(false);
    expect(Policy.safeParse({ ...base, name: "a/b" }).success).toBe(false);
    expect(Policy.safeParse({ ...base, statements: [{ effect: "allow", actions: ["nodes::fly"] }] }).success).toBe(
      false,
    );
    expect(Policy.safeParse({ ...base, statements: [{ ...base.statements[0], resources: ["*"] }] }).success).toBe(
      false,
    );
  });
});
