import { expect, test } from "vitest";
import { alertChange } from "../../../../src/controller/events/alert-rules.ts";

test.each([
  ["INFO", "UNKNOWN", "Node Restart", undefined, []],
  ["INFO", "EXCEEDED", "DNS Resolution", undefined, []],
  ["WARNING", "UNKNOWN", "Node Disconnect", "Node Disconnect", []],
  ["ERROR", "EXCEEDED", "DNS Resolution", "DNS Resolution", []],
  ["CRITICAL", "EXCEEDED", "Network Error", "Network Error", []],
  ["INFO", "CLEARED", "DNS Resolution", undefined, ["DNS Resolution"]],
  ["WARNING", "CLEARED", "All Peers Disconnected", undefined, ["All Peers Disconnected"]],
  ["INFO", "UNKNOWN", "Node Connect", undefined, ["Node Disconnect"]],
  ["INFO", "UNKNOWN", "constructor", undefined, []],
] as const)("%s %s of %s opens %s and clears %j", (level, state, eventType, opens, clears) => {
  expect(alertChange({ level, state, eventType })).toEqual({ opens, clears });
});
