import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  canonicalAction,
  isKnownAction,
  knownPermissions,
  permissions,
} from "../../../../../src/controller/access/policies/permissions.ts";

describe("spellings of an action", () => {
  it.each([
    ["node::read", "nodes::read"],
    ["node::configure:network", "nodes::configure:network"],
    ["node::configure::apigw", "nodes::configure:apigw"],
    ["node::configure::connectors", "nodes::configure:connectors"],
    ["node::configure::services", "nodes::configure:services"],
    ["nodes::configure::services", "nodes::configure:services"],
    ["nodes::configure::thresholds", "nodes::configure:thresholds"],
    ["nodes::configure:alert", "nodes::configure:thresholds"],
    ["domains::configure:threshold", "domains::configure:thresholds"],
    ["user::read", "users::read"],
    ["node-exec::read", "node-exec::read"],
    ["no action", "no action"],
    ["constructor", "constructor"],
  ])("%s is %s", (spelling, id) => {
    expect(canonicalAction(spelling)).toBe(id);
    expect(isKnownAction(spelling)).toBe(spelling !== "no action" && spelling !== "constructor");
  });

  it("are at rest after one step, whatever is given", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.constantFrom(...permissions.flatMap(({ aliases }) => aliases))), (text) => {
        expect(canonicalAction(canonicalAction(text))).toBe(canonicalAction(text));
      }),
    );
  });

  it("stand for one permission each", () => {
    const spellings = permissions.flatMap(({ id, aliases }) => [id].concat(aliases));
    expect(new Set(spellings).size).toBe(spellings.length);
    for (const id of knownPermissions) expect(canonicalAction(id)).toBe(id);
  });
});

describe("known actions", () => {
  it.each(["nodes::read", "audits::read:flows", "nodes::service:tg-ping", "nodes::service:any-event"])(
    "%s is one",
    (action) => expect(isKnownAction(action)).toBe(true),
  );

  it.each([
    "nodes::reed",
    "*",
    "nodes::*",
    "nodes::service:*",
    "nodes::configure:*",
    "",
    "nodes::service:",
    "nodes::service:-a",
    "nodes::service:a b",
    "NODES::READ",
    " nodes::read",
    "nodes::configure:vpn",
  ])("%s is none", (action) => expect(isKnownAction(action)).toBe(false));
});
