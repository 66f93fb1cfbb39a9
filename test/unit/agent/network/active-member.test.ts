import { expect, test } from "vitest";
import { isActiveMember } from "../../../../src/agent/network/active-member.ts";
import { nodeDocument } from "../../../support/control-plane/signing.ts";

const MEMBER = { cluster: "pair.example.com" } as const;
const MASTER = { config: { cluster: { master: true } } } as const;

test.each([
  ["the member that is named", { ...MEMBER, ...MASTER }, true],
  ["the other member", { ...MEMBER, config: { cluster: { master: false } } }, false],
  ["a member of which nothing is said", { ...MEMBER, config: {} }, false],
  ["what is no boolean", { ...MEMBER, config: { cluster: { master: "true" } } }, false],
  ["a node without a cluster", MASTER, false],
  ["the member that is named and INACTIVE", { ...MEMBER, ...MASTER, state: "INACTIVE" as const }, false],
])("%s", (_what, changes, isActive) => {
  expect(isActiveMember(nodeDocument(changes))).toBe(isActive);
});

test("a node without a document is not one", () => {
  expect(isActiveMember(undefined)).toBe(false);
});
