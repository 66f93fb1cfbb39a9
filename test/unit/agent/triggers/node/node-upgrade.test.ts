import { expect, test } from "vitest";
import { InputError } from "../../../../../src/errors.ts";
import { nodeUpgrade, type AskUpgrade } from "../../../../../src/agent/triggers/node/node-upgrade.ts";
import { UPGRADE_ANSWERS } from "../../../../../src/protocol/documents/release.ts";
import { rig } from "../rig.ts";

function requested(refusal?: Error) {
  const orders: unknown[] = [];
  const ask: AskUpgrade = (order) => {
    orders.push(order);
    if (refusal !== undefined) return Promise.reject(refusal);
    return Promise.resolve({ output: { status: UPGRADE_ANSWERS.begun } });
  };
  return { orders, trigger: nodeUpgrade(ask) };
}

test("requests in the name of the control plane, never forces, and answers in the platform's words", async () => {
  const { orders, trigger } = requested();
  expect(await rig([trigger]).run("node-upgrade")).toEqual({ body: { output: { status: "Upgrade in progress" } } });
  expect(await rig([trigger]).run("node-upgrade", { body: { skipUnattended: true } })).toHaveProperty("body");
  expect(await rig([trigger]).run("node-upgrade", { body: { stageOnly: true } })).toHaveProperty("body");
  expect(orders).toEqual([
    { skipUnattended: false, isForced: false, by: "control-plane" },
    { skipUnattended: true, isForced: false, by: "control-plane" },
    { skipUnattended: false, stageOnly: true, isForced: false, by: "control-plane" },
  ]);
});

test.each([{ skipUnattended: "yes" }, { stageOnly: "yes" }, { force: true }, { isForced: true }, { from: "/tmp/x" }])(
  "accepts nothing else: %j",
  async (body) => {
    const { orders, trigger } = requested();
    expect(await rig([trigger]).run("node-upgrade", { body })).toMatchObject({ error: { code: "invalid-body" } });
    expect(orders).toEqual([]);
  },
);

test("is for appliances, also for INACTIVE ones", async () => {
  const { trigger } = requested();
  expect(await rig([trigger], { node: { type: "Agent", state: "ACTIVE" } }).run("node-upgrade")).toMatchObject({
    error: { code: "not-supported" },
  });
  expect(await rig([trigger], { node: { type: "Node", state: "INACTIVE" } }).run("node-upgrade")).toHaveProperty(
    "body",
  );
});

test("answers why it could not start", async () => {
  const { trigger } = requested(new InputError("busy", "a change of the network is not confirmed yet"));
  expect(await rig([trigger]).run("node-upgrade")).toMatchObject({ error: { code: "busy" } });
});
