import { expect, test } from "vitest";
import type { Controller } from "../../../../src/controller/controller.ts";
import { RETURN_MS, WAIT_SECONDS } from "../../../../src/controller/channel/awaiting.ts";
import { until } from "../../../support/control-plane/node-client.ts";
import {
  addNode,
  clockWith,
  runController,
  type MovableClock,
} from "../../../support/control-plane/running-controller.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const SWEEP_MS = 5000;
const WAIT_MS = WAIT_SECONDS * 1000;
/** Sweeps happen often, and the time is the test's. */
const quick = (): MovableClock => clockWith(SWEEP_MS, 20);

/** Waits until the controller has swept. */
const sweeps = (clock: MovableClock): Promise<void> =>
  new Promise(
    (resolve) => void clock.after(SWEEP_MS, () => clock.after(SWEEP_MS, () => clock.after(SWEEP_MS, resolve))),
  );

async function timeouts(controller: Controller, uid: string) {
  const filter = { nodeIds: [uid], eventTypes: ["Connection Timeout"], limit: 100, offset: 0 };
  const { items } = await controller.events.find({ ...filter, sort: { by: "timestamp", order: "asc" } });
  return items.map(({ level, state, details }) => [level, state, details["reason"]]);
}

test("a node that registered and does not connect is reported once, and cleared when it does", async () => {
  const clock = quick();
  const controller = await runController({ clock });
  const node = await addNode(controller, "edge");
  clock.advance(WAIT_MS + 1000);
  await until(async () => (await timeouts(controller, node.uid)).length > 0);
  expect(await timeouts(controller, node.uid)).toEqual([["ERROR", "EXCEEDED", "registration"]]);
  expect((await controller.alerts.find(node.uid)).map(({ eventType }) => eventType)).toContain("Connection Timeout");
  await node.connect();
  expect((await timeouts(controller, node.uid)).at(-1)).toEqual(["INFO", "CLEARED", undefined]);
  expect(await controller.alerts.find(node.uid)).toEqual([]);
});

test("a node that is connected at the end of its time is not reported, and one that went away after a change is", async () => {
  const clock = quick();
  // The longest there is, so that no session counts as silent while the time is moved.
  const controller = await runController({ clock, heartbeatSeconds: 300 });
  const stays = await addNode(controller, "stays");
  const leaves = await addNode(controller, "leaves");
  const open = await stays.connect();
  const session = await leaves.connect();
  for (const { uid } of [stays, leaves]) await controller.nodes.setTag(uid, "site", "berlin", "test");
  clock.advance(WAIT_MS / 2);
  const beat = setInterval(() => open.raw.socket.ping(), 5);
  await session.cut();
  await until(async () => (await controller.nodes.get(leaves.uid))?.isOnline === false);
  clock.advance(WAIT_MS / 2 + 1000);
  // It went five minutes ago: what is judged now is put off until it has been away for ten.
  await sweeps(clock);
  expect(await timeouts(controller, leaves.uid)).toEqual([]);
  clock.advance(WAIT_MS / 2);
  await until(async () => (await timeouts(controller, leaves.uid)).length > 0);
  clearInterval(beat);
  expect(await timeouts(controller, leaves.uid)).toEqual([["ERROR", "EXCEEDED", "configuration"]]);
  expect(await timeouts(controller, stays.uid)).toEqual([]);
});

test("a restart of the controller forgets nobody, and gives nodes time to find it again", async () => {
  const dataDir = tempDir();
  const first = await runController({ dataDir, clock: quick() });
  const node = await addNode(first, "edge");
  await first.close();
  const clock = quick();
  clock.advance(2 * WAIT_MS);
  const second = await runController({ dataDir, clock });
  clock.advance(RETURN_MS - 10_000);
  await sweeps(clock);
  expect(await timeouts(second, node.uid)).toEqual([]);
  clock.advance(20_000);
  await until(async () => (await timeouts(second, node.uid)).length > 0);
  expect(await timeouts(second, node.uid)).toEqual([["ERROR", "EXCEEDED", "registration"]]);
});

test("a deleted node is expected no more", async () => {
  const clock = quick();
  const controller = await runController({ clock });
  const gone = await addNode(controller, "gone");
  const other = await addNode(controller, "other");
  await controller.nodes.delete(gone.uid, "test");
  clock.advance(WAIT_MS + 1000);
  await until(async () => (await timeouts(controller, other.uid)).length > 0);
  expect(await timeouts(controller, gone.uid)).toEqual([]);
});
