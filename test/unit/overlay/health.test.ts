import { expect, it } from "vitest";
import { judge, type Health } from "../../../src/overlay/health.ts";

it.each([
  ["+", "up"],
  ["-", "unknown"],
  ["---", "down"],
  ["--+", "up"],
  ["+--", "up"],
  ["+---", "down"],
  ["+--+--", "up"],
  ["---+", "down"],
  ["---++", "up"],
  ["---+-+", "down"],
])("after %s a service is %s", (checks, state) => {
  let health: Health = { state: "unknown", contrary: 0 };
  for (const check of checks) health = judge(health, check === "+", { intervalMs: 1000, failures: 3, successes: 2 });
  expect(health.state).toBe(state);
});
