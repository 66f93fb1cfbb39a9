import { expect, test } from "vitest";
import { isRead, triggerLabel } from "../../../../src/controller/triggers/trigger-label.ts";

test.each([
  ["node-restart-service", "Node Restart"],
  ["node-upgrade", "Node Upgrade"],
  ["tg-ping", "Ping"],
  ["tg-net-ping", "Net Ping"],
  ["speed-test", "Speed Test"],
  ["constructor", "Constructor"],
])("%s is %s", (event, label) => {
  expect(triggerLabel(event)).toBe(label);
});

test.each([
  [true, "container-status", {}],
  [true, "why", undefined],
  [true, "container-image", { action: "list" }],
  [false, "container-image", { action: "delete", image: "a/b" }],
  [false, "container-image", {}],
  [true, "datastore-manager", undefined],
  [true, "datastore-manager", { action: "TASKS" }],
  [false, "datastore-manager", { action: "DELETE", filename: "a" }],
  [true, "flows", { protocol: "tcp" }],
  [false, "flows", { action: "delete" }],
  [true, "tg-capture", { action: "status" }],
  [false, "tg-capture", { action: "stop" }],
  [true, "nat-hits", { action: "GET" }],
  [false, "nat-hits", { action: "RESET_ALL" }],
  [false, "nat-hits", { action: null }],
  [false, "tg-ping", { action: "read" }],
  [false, "constructor", {}],
])("that it only reads is %s of %s with %j", (reads, event, body) => {
  expect(isRead({ event, body })).toBe(reads);
});
