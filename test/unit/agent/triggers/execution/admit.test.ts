import { expect, test } from "vitest";
import { refusal, type NodeFacts, type Running } from "../../../../../src/agent/triggers/execution/admit.ts";
import { oneShot } from "../rig.ts";

const node: NodeFacts = { type: "Node", state: "ACTIVE" };
const running = (...events: readonly string[]): Running[] =>
  events.map((event) => ({ event, exclusive: undefined, isLasting: false }));
const nothing = (): Promise<unknown> => Promise.resolve({});

test("an agent answers only events for agents", () => {
  const trigger = oneShot("node-reboot", nothing, { agents: false });
  expect(refusal(trigger, { ...node, type: "Agent" }, [])).toMatchObject({ code: "not-supported" });
  expect(refusal(trigger, node, [])).toBeUndefined();
});

test("an INACTIVE node answers only events that need no data plane", () => {
  const inactive: NodeFacts = { ...node, state: "INACTIVE" };
  expect(refusal(oneShot("flows", nothing, { needsDataPlane: true }), inactive, [])).toMatchObject({
    code: "inactive",
  });
  expect(refusal(oneShot("tg-ping", nothing), inactive, [])).toBeUndefined();
});

test("allows two of one event, eight in all, and one of an exclusive kind", () => {
  const trigger = oneShot("a", nothing);
  expect(refusal(trigger, node, running("a", "b"))).toBeUndefined();
  expect(refusal(trigger, node, running("a", "a"))).toMatchObject({ code: "busy" });
  expect(refusal(trigger, node, running("b", "b", "c", "c", "d", "d", "e"))).toBeUndefined();
  expect(refusal(trigger, node, running("b", "b", "c", "c", "d", "d", "e", "e"))).toMatchObject({ code: "busy" });
  const exclusive = oneShot("node-reboot", nothing, { exclusive: "node" });
  expect(
    refusal(exclusive, node, [{ event: "node-restart-service", exclusive: "node", isLasting: false }]),
  ).toMatchObject({
    code: "busy",
    details: { running: "node-restart-service" },
  });
  expect(refusal(exclusive, node, running("a"))).toBeUndefined();
});
