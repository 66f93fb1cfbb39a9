import { expect, test } from "vitest";
import { nodeFacts, typeHere, unsupportedHere } from "../../../src/agent/profile.ts";

test("an install as an agent stays one, whatever the control plane sends", () => {
  expect(typeHere("agent", "Node")).toBe("Agent");
  expect(typeHere("agent", undefined)).toBe("Agent");
  expect(typeHere("appliance", "Agent")).toBe("Agent");
  expect(typeHere("appliance", "Node")).toBe("Node");
  expect(typeHere("appliance", undefined)).toBe("Node");
});

test("it says why it does not manage network and containers", () => {
  expect(unsupportedHere("appliance")).toBeUndefined();
  expect(unsupportedHere("agent")).toContain("installed as an agent");
});

test("the document, or else the registration, decides on triggers", () => {
  const none = { current: {} };
  expect(nodeFacts("appliance", none, () => "Agent")()).toEqual({ type: "Agent", state: "ACTIVE" });
  expect(nodeFacts("appliance", none, () => undefined)()).toEqual({ type: "Node", state: "ACTIVE" });
  expect(nodeFacts("agent", none, () => "Node")()).toEqual({ type: "Agent", state: "ACTIVE" });
});
