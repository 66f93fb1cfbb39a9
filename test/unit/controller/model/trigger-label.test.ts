import { expect, test } from "vitest";
import { triggerLabel } from "../../../../src/controller/model/trigger-label.ts";

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
