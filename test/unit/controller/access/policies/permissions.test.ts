import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  anyOf,
  isKnownAction,
  knownPermissions,
  normaliseAction,
  tgrn,
} from "../../../../../src/controller/access/policies/permissions.ts";
import type { Policy } from "../../../../../src/controller/access/policies/policy.ts";
import { isAllowed, reachOf, resourceCovers } from "../../../../../src/controller/access/policies/verdict.ts";

const policy = (effect: "allow" | "deny", actions: string[], resources = ["*"]): Policy => ({
  name: "p",
  statements: [{ effect, actions }],
  resources,
});

describe("spellings of an action", () => {
  it.each([
    ["node::configure:network", "nodes::configure:network"],
    ["node::configure::apigw", "nodes::configure:apigw"],
    ["nodes::configure::services", "nodes::configure:services"],
    ["nodes::configure:gateway", "nodes::configure:gateway"],
    ["node::configure::*", "nodes::configure:*"],
    ["node::*", "nodes::*"],
    ["node-exec::read", "node-exec::read"],
    ["node::service::tg-*", "nodes::service:tg-*"],
    ["*", "*"],
    ["no action", "no action"],
  ])("%s is %s", (spelling, normal) => {
    expect(normaliseAction(spelling)).toBe(normal);
  });

  it("come to rest after one step, whatever is given", () => {
    const part = fc.constantFrom("node", "nodes", "::", ":", ":::", "configure", "*", "x", "-", "service", "");
    const texts = fc.oneof(
      fc.string(),
      fc.array(part, { maxLength: 8 }).map((parts) => parts.join("")),
    );
    fc.assert(
      fc.property(texts, (text) => {
        const once = normaliseAction(text);
        expect(normaliseAction(once)).toBe(once);
      }),
    );
  });

  it("leaves every known permission as it is", () => {
    for (const known of knownPermissions) expect(normaliseAction(known)).toBe(known);
  });
});

describe("known actions", () => {
  it.each(["nodes::read", "*", "nodes::*", "nodes::configure:*", "nodes::service:tg-ping", "nodes::service:any-event"])(
    "%s is one",
    (action) => expect(isKnownAction(action)).toBe(true),
  );

  it.each([
    "nodes::reed",
    "node*",
    "nodes*",
    "nodes::read*",
    "**",
    "",
    "nothing::*",
    "nodes::service:",
    "nodes::service:-a",
    "nodes::service:a b",
    "nodes::configure:ne twork",
    "NODES::READ",
  ])("%s is none", (action) => expect(isKnownAction(action)).toBe(false));
});

describe("resource patterns", () => {
  it.each([
    ["*", "tgrn:tg::nodes:node/a", true],
    ["tgrn:*", "tgrn:tg::nodes:node/a", true],
    ["tgrn:tg::nodes:*", "tgrn:tg::nodes:node/a", true],
    ["tgrn:tg::nodes:node/*", "tgrn:tg::nodes:node/a", true],
    ["tgrn:tg::nodes:node/*", "tgrn:tg::nodes:cluster/a", false],
    ["tgrn:tg::nodes:node/a", "tgrn:tg::nodes:node/a", true],
    ["tgrn:tg::nodes:node/a", "tgrn:tg::nodes:node/ab", false],
    ["tgrn:tg::nodes:node/a*", "tgrn:tg::nodes:node/ab", true],
    ["tgrn:tg::nod*:node/a", "tgrn:tg::nodes:node/a", true],
    ["tgrn:tg::nodes:node/a", "tgrn:tg::nodes", false],
    ["tgrn:tg::nodes", "tgrn:tg::nodes:node/a", false],
    ["tgrn:tg::nodes:node/a", anyOf(tgrn.node("")), false],
    ["tgrn:tg::nodes:node/*", anyOf(tgrn.node("")), true],
  ])("%s over %s: %s", (pattern, resource, isCovered) => {
    expect(resourceCovers(pattern, resource)).toBe(isCovered);
  });
});

describe("a decision", () => {
  it("allows nothing by silence", () => {
    expect(isAllowed([], ["nodes::read"], tgrn.node("a"))).toBe(false);
    expect(isAllowed([policy("allow", ["nodes::manage"])], ["nodes::read"], tgrn.node("a"))).toBe(false);
    expect(isAllowed([policy("allow", ["nodes::*"], [tgrn.node("b")])], ["nodes::read"], tgrn.node("a"))).toBe(false);
  });

  it("is a refusal whenever a covering deny is among the policies", () => {
    const actions = fc.subarray(["*", "nodes::*", "nodes::read", "users::read"], { minLength: 1 });
    const resources = fc.subarray(["*", "tgrn:tg::nodes:node/*", "tgrn:tg::nodes:node/a"], { minLength: 1 });
    const any = fc.record({
      name: fc.constant<string>("p"),
      statements: fc.array(fc.record({ effect: fc.constantFrom("allow" as const, "deny" as const), actions }), {
        maxLength: 3,
      }),
      resources,
    });
    fc.assert(
      fc.property(fc.array(any, { maxLength: 4 }), fc.nat({ max: 4 }), (policies, at) => {
        const withDeny = policies.toSpliced(at, 0, policy("deny", ["nodes::read"], ["tgrn:tg::nodes:node/*"]));
        expect(isAllowed(withDeny, ["nodes::read"], tgrn.node("a"))).toBe(false);
        expect(reachOf(withDeny, "nodes::read", tgrn.node(""))).toBe("none");
      }),
    );
  });

  it("lets a denied specific permission through by no blanket one", () => {
    const asked = ["nodes::service:node-reboot", "nodes::remote-execute"];
    const may = (policies: Policy[]) => isAllowed(policies, asked, tgrn.node("a"));
    expect(may([policy("allow", ["nodes::remote-execute"])])).toBe(true);
    expect(may([policy("allow", ["nodes::service:node-reboot"])])).toBe(true);
    expect(may([policy("allow", ["nodes::service:tg-ping"])])).toBe(false);
    expect(may([policy("allow", ["nodes::remote-execute"]), policy("deny", [asked[0] ?? ""])])).toBe(false);
    expect(may([policy("allow", ["nodes::service:*"]), policy("deny", ["nodes::remote-execute"])])).toBe(true);
  });

  it("tells how far a permission reaches over a kind", () => {
    const reach = (policies: Policy[]) => reachOf(policies, "nodes::read", tgrn.node(""));
    expect(reach([])).toBe("none");
    expect(reach([policy("allow", ["*"])])).toBe("all");
    expect(reach([policy("allow", ["*"], [tgrn.node("a")])])).toBe("some");
    expect(reach([policy("allow", ["*"]), policy("deny", ["nodes::read"], [tgrn.node("a")])])).toBe("some");
    expect(reach([policy("allow", ["*"]), policy("deny", ["nodes::*"])])).toBe("none");
    expect(reach([policy("allow", ["*"]), policy("deny", ["users::read"])])).toBe("all");
  });

  it.each([
    ["tgrn:tg::nodes:node/a", "some"],
    ["tgrn:tg::nodes:node/a*", "some"],
    ["tgrn:tg::nod*:node/a", "some"],
    ["tgrn:tg::nodes:n*", "all"],
    ["tgrn:tg::*", "all"],
    ["tgrn:tg::nodes:cluster/a", "none"],
    ["tgrn:tg::nodes:cluster/*", "none"],
    ["tgrn:tg::users:*", "none"],
    ["tgrn:tg::users:node/a", "none"],
    ["tgrn:tg::nodes:node", "none"],
  ])("on %s reaches %s of the nodes", (pattern, reach) => {
    expect(reachOf([policy("allow", ["*"], [pattern])], "nodes::read", tgrn.node(""))).toBe(reach);
  });
});
