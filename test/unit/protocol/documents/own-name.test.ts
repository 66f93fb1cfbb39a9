import { expect, test } from "vitest";
import { isOwnName, unknownNodeText } from "../../../../src/protocol/documents/own-name.ts";
import { uidOf } from "../../../support/overlay/mesh.ts";

const node = { uid: uidOf(1), name: "edge", fqdn: "edge.example.org", cluster: "pair.example.org" };

test.each(["local", "edge", "edge.example.org", uidOf(1), "pair", "pair.example.org"])("%s is this node", (name) => {
  expect(isOwnName(node, name)).toBe(true);
});

test.each(["Edge", "LOCAL", "edge.Example.org", "other", "edge.example"])("%s is not", (name) => {
  expect(isOwnName(node, name)).toBe(false);
});

test("hints at the right spelling for a name that differs only in its capitals", () => {
  expect(unknownNodeText("Edge")).toContain("compared exactly and are lower-case, such as edge");
  expect(unknownNodeText("edge")).not.toContain("exactly");
});
