import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { permissions } from "../../../../../src/controller/access/policies/permissions.ts";
import { ADMIN_POLICY, Policy, PolicyBody, sizeProblem } from "../../../../../src/controller/access/policies/policy.ts";

const base = { name: "p", statements: [{ effect: "allow", actions: ["nodes::read"] }], resources: ["*"] };
const takes = (change: object) => PolicyBody.safeParse({ ...base, ...change }).success;

describe("a policy", () => {
  it("is kept letter for letter", () => {
    const spellings = permissions.flatMap(({ id, aliases }) => [id].concat(aliases));
    const section = fc.record(
      {
        eq: fc.option(
          fc.dictionary(fc.constantFrom("tg:node:tags:a", "tg:node:tags:B"), fc.array(fc.string({ maxLength: 9 }))),
        ),
        ne: fc.constant(null),
      },
      { requiredKeys: [] },
    );
    const written = fc.record(
      {
        name: fc.constant("p"),
        description: fc.constantFrom("", " two  words "),
        statements: fc.array(
          fc.record({
            actions: fc.array(fc.constantFrom(...spellings), { minLength: 1, maxLength: 5 }),
            effect: fc.constantFrom("allow", "deny", "noop"),
          }),
          { minLength: 1, maxLength: 3 },
        ),
        resources: fc.array(fc.constantFrom("*", "tgrn:tg::nodes:node/B", "tgrn:tg::nodes:node/*"), { minLength: 1 }),
        conditions: fc.option(fc.record({ all: section, any: section, none: fc.constant(null) }, { requiredKeys: [] })),
      },
      { requiredKeys: ["name", "statements", "resources"] },
    );
    fc.assert(
      fc.property(written, (policy) => {
        expect(PolicyBody.parse(policy)).toEqual(policy);
        expect(Policy.parse(JSON.parse(JSON.stringify(PolicyBody.parse(policy))))).toEqual(policy);
      }),
    );
  });

  it("of an earlier version is read, but not written", () => {
    const old = {
      ...base,
      statements: [{ effect: "deny", actions: ["nodes::*", "*"] }],
      resources: ["tgrn:tg::nod*:node/a"],
    };
    expect(Policy.parse(old)).toEqual(old);
    expect(Policy.parse(ADMIN_POLICY)).toEqual(ADMIN_POLICY);
    expect(PolicyBody.safeParse(old).success).toBe(false);
  });

  it.each([
    "*",
    "tgrn:tg::nodes:node/*",
    "tgrn:tg::nodes:cluster/*",
    "tgrn:tg::access-apps:app/x1",
    "tgrn:tg::nodes:cluster/a.b.c",
    "tgrn:tg::users:user/a+b@example.net",
    "tgrn:anything",
  ])("takes the resource %s", (resource) => expect(takes({ resources: [resource] })).toBe(true));

  it.each([
    "",
    "node/a",
    "tgrn:",
    "tgrn:*",
    "tgrn:tg::nodes:*",
    "tgrn:tg::nodes:node/a b",
    "tgrn:tg::nodes:node/a*b",
    "tgrn:tg::nodes:node/a*",
    "tgrn:tg::*:node/a",
    "urn:x",
    "**",
    `tgrn:${"x".repeat(508)}`,
  ])("refuses the resource '%s'", (resource) => expect(takes({ resources: [resource] })).toBe(false));

  it("refuses what is missing, unknown or too much", () => {
    const statement = base.statements[0];
    for (const change of [
      { resources: [] },
      { resources: Array.from({ length: 257 }, () => "*") },
      { statements: [] },
      { statements: Array.from({ length: 65 }, () => statement) },
      { extra: 1 },
      { name: "a/b" },
      { condition: {} },
      { statements: [{ effect: "allow", actions: ["nodes::fly"] }] },
      { statements: [{ effect: "allow", actions: [] }] },
      { statements: [{ effect: "Allow", actions: ["nodes::read"] }] },
      { statements: [{ effect: "allow", actions: Array.from({ length: 257 }, () => "nodes::read") }] },
      { statements: [{ ...statement, resources: ["*"] }] },
    ])
      expect([change, takes(change)]).toEqual([change, false]);
  });

  it("has a limit of its size", () => {
    const of = (count: number) => ({
      statements: [{ effect: "allow" as const, actions: ["nodes::read"] }],
      resources: Array.from({ length: count }, () => `tgrn:${"x".repeat(500)}`),
    });
    expect(sizeProblem(of(100))).toBeUndefined();
    expect(sizeProblem(of(140))).toMatch(/^body: has more than 65536 characters/);
  });
});
