import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { anyOf, ORGANIZATION, tgrn } from "../../../../../src/controller/access/policies/permissions.ts";
import type { Policy } from "../../../../../src/controller/access/policies/policy.ts";
import { simulate } from "../../../../../src/controller/access/policies/simulate.ts";
import {
  isAllowed,
  resourceCovers,
  rulesFor,
  type Resource,
} from "../../../../../src/controller/access/policies/verdict.ts";

const READ = ["nodes::read"];
const A = tgrn.node("a");
const policy = (
  effect: Policy["statements"][number]["effect"],
  actions: string[],
  resources = ["*"],
  conditions?: Policy["conditions"],
): Policy => ({ name: "p", statements: [{ effect, actions }], resources, conditions });
const inProd = { all: { eq: { "tg:node:tags:env": ["prod"] } } };
const prod = { env: "prod" };

const names = [A, tgrn.node("b"), tgrn.cluster("c.example.net"), tgrn.policy("p"), ORGANIZATION];
const anyConditions = fc.constantFrom<Policy["conditions"]>(
  undefined,
  null,
  {},
  inProd,
  { any: { ne: { "tg:node:tags:env": ["prod"] } } },
  { none: { eq: { "tg:node:tags:env": ["prod"] } } },
);
const anyPolicy: fc.Arbitrary<Policy> = fc.record({
  name: fc.constant("p"),
  statements: fc.array(
    fc.record({
      effect: fc.constantFrom("allow" as const, "deny" as const, "noop" as const),
      actions: fc.subarray(["nodes::read", "node::read", "nodes::*", "users::read", "*"], { minLength: 1 }),
    }),
    { maxLength: 3 },
  ),
  resources: fc.subarray(["*", anyOf(tgrn.node("")), anyOf(tgrn.cluster("")), ...names], { minLength: 1 }),
  conditions: anyConditions,
});
const anyPolicies = fc.array(anyPolicy, { maxLength: 4 });
const anyTags = fc.constantFrom({}, prod, { env: "dev" });
const anyName = fc.constantFrom(...names);

describe("resource patterns", () => {
  it.each([
    ["*", A, true],
    ["*", ORGANIZATION, true],
    ["tgrn:tg::nodes:node/*", A, true],
    ["tgrn:tg::nodes:node/*", ORGANIZATION, false],
    ["tgrn:tg::nodes:node/*", tgrn.cluster("a"), false],
    ["tgrn:tg::nodes:node/a", A, true],
    ["tgrn:tg::nodes:node/a", tgrn.node("ab"), false],
    ["tgrn:tg::nodes:node/A", A, false],
    ["tgrn:tg::nodes:node/a", "tgrn:tg::nodes", false],
    ["tgrn:tg::nodes", A, false],
    ["tgrn:tg::nodes:node/a", anyOf(tgrn.node("")), false],
    ["tgrn:tg::nodes:node/*", anyOf(tgrn.node("")), true],
    // Patterns of earlier versions.
    ["tgrn:*", A, true],
    ["tgrn:tg::nodes:*", A, true],
    ["tgrn:tg::nodes:node/a*", tgrn.node("ab"), true],
    ["tgrn:tg::nod*:node/a", A, true],
    ["tgrn:tg::nod*:node/a", tgrn.node("b"), false],
  ])("%s over %s: %s", (pattern, resource, isCovered) => {
    expect(resourceCovers(pattern, resource)).toBe(isCovered);
  });
});

describe("a decision", () => {
  const may = (policies: Policy[], resource: Resource = { name: A }, permissions = READ) =>
    isAllowed(policies, permissions, resource);

  it("allows nothing by silence", () => {
    expect(may([])).toBe(false);
    expect(may([policy("allow", ["nodes::manage"])])).toBe(false);
    expect(may([policy("allow", READ, [tgrn.node("b")])])).toBe(false);
    expect(may([policy("noop", READ)])).toBe(false);
  });

  it("takes every spelling of an action", () => {
    expect(may([policy("allow", ["node::read"])])).toBe(true);
    expect(may([policy("allow", READ), policy("deny", ["node::read"])])).toBe(false);
  });

  it("follows the tags of nodes and clusters", () => {
    for (const name of [A, tgrn.cluster("c")]) {
      expect(may([policy("allow", READ, ["*"], inProd)], { name, tags: prod })).toBe(true);
      expect(may([policy("allow", READ, ["*"], inProd)], { name, tags: { env: "dev" } })).toBe(false);
      expect(may([policy("allow", READ), policy("deny", READ, ["*"], inProd)], { name, tags: prod })).toBe(false);
      expect(may([policy("allow", READ), policy("deny", READ, ["*"], inProd)], { name, tags: {} })).toBe(true);
    }
    expect(may([policy("allow", READ, [tgrn.node("b")], inProd)], { name: A, tags: prod })).toBe(false);
  });

  it("on what has no tags skips a policy with a condition, and allows nothing where they are unknown", () => {
    const without = policy("allow", READ, ["*"], { none: inProd.all });
    for (const name of [tgrn.policy("p"), ORGANIZATION, tgrn.node("a"), anyOf(tgrn.node(""))]) {
      expect(may([without], { name })).toBe(false);
    }
    const denied = [policy("allow", READ), policy("deny", READ, ["*"], inProd)];
    expect(may(denied, { name: tgrn.policy("p") })).toBe(true);
    expect(may(denied, { name: ORGANIZATION })).toBe(true);
    expect(may(denied, { name: A })).toBe(false);
    expect(may(denied, { name: anyOf(tgrn.node("")) })).toBe(false);
  });

  it("passes with either of two permissions, and a deny of either refuses", () => {
    const asked = ["nodes::service:node-reboot", "nodes::remote-execute"];
    const [event = "", every = ""] = asked;
    const decide = (...policies: Policy[]) => may(policies, { name: A }, asked);
    expect(decide(policy("allow", [every]))).toBe(true);
    expect(decide(policy("allow", [event]))).toBe(true);
    expect(decide(policy("allow", ["nodes::service:tg-ping"]))).toBe(false);
    expect(decide(policy("allow", [every]), policy("deny", [event]))).toBe(false);
    expect(decide(policy("allow", [event]), policy("deny", [every]))).toBe(false);
  });

  it("grants a capture only by its name, and denies it by a wildcard", () => {
    const capture = "node-advanced::service:tg-capture";
    const decide = (...policies: Policy[]) => may(policies, { name: A }, [capture]);
    expect(decide(policy("allow", ["*", "node-advanced::*"]))).toBe(false);
    expect(decide(policy("allow", [capture]))).toBe(true);
    expect(decide(policy("allow", [capture]), policy("deny", ["node-advanced::*"]))).toBe(false);
  });

  it("is a refusal whenever a covering deny is among the policies", () => {
    fc.assert(
      fc.property(anyPolicies, fc.nat({ max: 4 }), anyTags, (policies, at, tags) => {
        const withDeny = policies.toSpliced(at, 0, policy("deny", READ, [anyOf(tgrn.node(""))]));
        expect(may(withDeny, { name: A, tags })).toBe(false);
        expect(rulesFor(withDeny, READ).reach(tgrn.node(""))).toBe("none");
      }),
    );
  });

  it("with unknown tags allows only what any tags would", () => {
    fc.assert(
      fc.property(anyPolicies, anyName, anyTags, (policies, name, tags) => {
        fc.pre(name.startsWith("tgrn:tg::nodes:"));
        if (may(policies, { name })) expect(may(policies, { name, tags })).toBe(true);
        const { needsTags } = rulesFor(policies, READ);
        if (!needsTags) expect(may(policies, { name })).toBe(may(policies, { name, tags }));
      }),
    );
  });

  it("depends on no order, and on no noop", () => {
    fc.assert(
      fc.property(anyPolicies, anyName, anyTags, (policies, name, tags) => {
        const resource = { name, tags: name.startsWith("tgrn:tg::nodes:") ? tags : undefined };
        const turned = policies
          .map((one) => ({ ...one, statements: one.statements.filter(({ effect }) => effect !== "noop").reverse() }))
          .reverse();
        expect(may(turned, resource)).toBe(may(policies, resource));
      }),
    );
  });

  it("is that of the simulator", () => {
    fc.assert(
      fc.property(anyPolicies, anyName, fc.option(anyTags, { nil: undefined }), (policies, name, tags) => {
        const resource = { name, tags: name.startsWith("tgrn:tg::nodes:") ? tags : undefined };
        const held = policies.map((one) => ({ policy: one, source: "user" }));
        const { decision, matched, skipped } = simulate(held, "nodes::read", resource);
        expect(decision).toBe(rulesFor(policies, READ).decide(resource));
        expect(matched.length + skipped.length).toBeGreaterThanOrEqual(policies.length);
      }),
    );
  });
});

describe("the reach of a permission over a kind", () => {
  const reach = (...policies: Policy[]) => rulesFor(policies, READ).reach(tgrn.node(""));

  it("is all, some or none of it", () => {
    expect(reach()).toBe("none");
    expect(reach(policy("allow", ["*"]))).toBe("all");
    expect(reach(policy("allow", READ, [A]))).toBe("some");
    expect(reach(policy("allow", READ, ["*"], inProd))).toBe("some");
    expect(reach(policy("allow", READ), policy("deny", READ, [A]))).toBe("some");
    expect(reach(policy("allow", READ), policy("deny", READ, ["*"], inProd))).toBe("some");
    expect(reach(policy("allow", READ), policy("deny", ["nodes::*"]))).toBe("none");
    expect(reach(policy("allow", READ), policy("deny", ["users::read"]))).toBe("all");
  });

  it.each([
    ["tgrn:tg::nodes:node/a", "some"],
    ["tgrn:tg::nodes:node/*", "all"],
    ["tgrn:tg::nodes:node/a*", "some"],
    ["tgrn:tg::nod*:node/a", "some"],
    ["tgrn:tg::nodes:n*", "all"],
    ["tgrn:tg::*", "all"],
    ["tgrn:tg::nodes:cluster/a", "none"],
    ["tgrn:tg::nodes:cluster/*", "none"],
    ["tgrn:tg::users:*", "none"],
    ["tgrn:tg::users:node/a", "none"],
    ["tgrn:tg::nodes:node", "none"],
  ])("of %s is %s of the nodes", (pattern, expected) => {
    expect(reach(policy("allow", ["*"], [pattern]))).toBe(expected);
  });

  it("never promises or withholds what a decision does not", () => {
    fc.assert(
      fc.property(anyPolicies, anyName, anyTags, (policies, name, tags) => {
        const rules = rulesFor(policies, READ);
        const kinds = [tgrn.node(""), tgrn.cluster(""), tgrn.policy(""), "tgrn:tg::nodes:"];
        for (const kind of kinds.filter((one) => name.startsWith(one))) {
          const resource = { name, tags: name.startsWith("tgrn:tg::nodes:") ? tags : undefined };
          if (rules.reach(kind) === "all") expect(rules.decide(resource)).toBe("allow");
          if (rules.reach(kind) === "none") expect(rules.decide(resource)).not.toBe("allow");
        }
      }),
    );
  });
});
