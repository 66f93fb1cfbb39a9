import { expect, test } from "vitest";
import { ReplyCollector } from "../../../../src/protocol/channel/reply-parts.ts";
import { addNode, runController } from "../../../support/control-plane/running-controller.ts";
import { claims, fastClock, NOW, oneShot, rig, TestChannel } from "./rig.ts";
import { until } from "../../../support/control-plane/node-client.ts";

const entry = (index: number) => {
  const name = `a rather long name of a file, ${index}.qcow2`;
  return { name, path: `images/of/machines/${name}`, type: "file", size: "1.2 GB", bytes: 1_234_567_890 };
};
const large = { files: Array.from({ length: 10_000 }, (_, index) => entry(index)) };
const nested = (depth: number): object => (depth === 0 ? {} : { files: [nested(depth - 1)] });
const list = (body: unknown) => oneShot("list", () => Promise.resolve(body), { readOnly: true });

test.each([
  ["large", large],
  ["deep", nested(16)],
])("a caller that accepts output gets a %s answer in parts, and the journal keeps little", async (_, body) => {
  const { run, channel } = rig([list(body)]);
  expect(await run("list", { wait: false, watched: true })).toEqual({ body: true });
  await until(() => channel.results.length === 1);
  const collector = new ReplyCollector();
  for (const { kind, data } of channel.parts) expect([kind, collector.take(data)]).toEqual(["json", true]);
  const [result] = channel.results;
  expect(Buffer.byteLength(JSON.stringify(result))).toBeLessThan(200);
  expect(collector.whole(result !== undefined && "body" in result.reply ? result.reply.body : undefined)).toEqual(body);
});

test("a small answer comes complete, and one too large for a message is refused without output", async () => {
  const { run, channel } = rig([list({ files: [] })]);
  await run("list", { wait: false, watched: true });
  await until(() => channel.results.length === 1);
  expect([channel.parts, channel.results[0]?.reply]).toEqual([[], { body: { files: [] } }]);
  for (const body of [large, nested(16)]) {
    expect(await rig([list(body)]).run("list")).toMatchObject({ error: { code: "too-large" } });
    expect(await rig([list(body)]).run("list", { wait: false })).toEqual({ body: true });
  }
  expect(await rig([list(nested(14))]).run("list")).toEqual({ body: nested(14) });
});

test("a caller on this machine gets it complete", async () => {
  const { dispatcher } = rig([list(large)]);
  const replyLimits = { maxBytes: 16 * 1024 * 1024, maxDepth: 62 };
  const channel: TestChannel = Object.assign(new TestChannel(), { replyLimits });
  for (const wait of [true, false]) {
    const { reply } = dispatcher.runLocal({ event: "list", body: {}, wait }, channel);
    if (wait) expect(await reply).toEqual({ body: large });
  }
  await until(() => channel.results.length === 1);
  expect([channel.parts, channel.results[0]?.reply]).toEqual([[], { body: large }]);
});

test("a node with 10,000 entries sends them all through its session", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const channel = new TestChannel();
  const { dispatcher } = rig([list(large)], { clock: fastClock(1), isOffline: true });
  const session = await node.connect({
    handlers: {
      "trigger.run": async ({ jws }) => {
        const { jti } = JSON.parse(Buffer.from(jws.split(".")[1] ?? "", "base64url").toString()) as { jti: string };
        const reply = await dispatcher.run(claims("list", { jti, wait: false, watched: true }), channel, NOW);
        return "body" in reply ? reply.body : undefined;
      },
    },
  });
  channel.progress = (part) => session.peer.notify("trigger.progress", part);
  channel.result = async (id, reply) => {
    if ("body" in reply) await session.peer.request("trigger.result", { id, body: reply.body });
  };
  dispatcher.attach(channel);
  const collector = new ReplyCollector();
  const order = { event: "list", body: {}, wait: true, user: "ann", deadlineMs: 60_000 };
  const options = {
    signal: new AbortController().signal,
    onProgress: ({ data }: { readonly data: unknown }) => void collector.take(data),
  };
  expect(collector.whole(await controller.triggers.run(node.uid, order, options))).toEqual(large);
});
