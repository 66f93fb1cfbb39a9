import { once } from "node:events";
import { createServer } from "node:http";
import type { Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { NodeSession } from "../../../../src/controller/channel/session.ts";
import { SESSION_BUDGET, VALUES_PER_MESSAGE } from "../../../../src/protocol/channel/envelope.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { until } from "../../../support/control-plane/node-client.ts";

interface Bench {
  readonly clock: FakeClock;
  readonly session: NodeSession;
  readonly node: WebSocket;
  /** The node's socket below the WebSocket. */
  readonly wire: Socket;
  readonly closed: () => number | undefined;
  readonly refused: readonly string[];
  readonly beats: readonly number[];
  readonly isOver: () => boolean;
}

/** A session over a real socket, apart from everything else of a controller. */
async function openSession(): Promise<Bench> {
  const clock = new FakeClock();
  const [refused, beats]: [string[], number[]] = [[], []];
  let isOver = false;
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  const sockets = new WebSocketServer({ noServer: true, perMessageDeflate: false });
  const accepted = new Promise<NodeSession>((resolve) => {
    server.once("upgrade", (request, stream, head) =>
      sockets.handleUpgrade(request, stream, head, (socket) => {
        const start = { iat: 1000, sinceBoot: clock.sinceBoot() };
        const facts = { uid: "node", sid: "sid", cnonce: "cnonce", address: "127.0.0.1", start };
        const hooks = {
          clock,
          handlers: () => ({ heartbeat: ({ seq }: { seq: number }) => void beats.push(seq) }),
          onClose: () => void (isOver = true),
          onFault: (_: NodeSession, method: string) => void refused.push(method),
          onRefused: (_: NodeSession, kind: string) => void refused.push(kind),
        };
        resolve(new NodeSession(facts, socket, stream, hooks));
      }),
    );
  });
  const node = new WebSocket(`ws://127.0.0.1:${address.port}`, { perMessageDeflate: false });
  onTestFinished(() => {
    node.terminate();
    server.closeAllConnections();
    server.close();
  });
  let code: number | undefined;
  node.on("close", (got) => (code = got)).on("error", () => undefined);
  const [[{ socket: wire }]] = (await Promise.all([once(node, "upgrade"), once(node, "open")])) as [
    [{ socket: Socket }],
    unknown,
  ];
  return { clock, session: await accepted, node, wire, closed: () => code, refused, beats, isOver: () => isOver };
}

const beat = (seq: number): string => {
  const bytes = { totalBytes: 1, availableBytes: 1 };
  const params = {
    seq,
    at: 1,
    uptimeSeconds: 1,
    load: 0,
    memory: bytes,
    disk: { totalBytes: 1, freeBytes: 1, usedRatio: 0 },
    overlay: "DOWN",
    queue: { records: 0, dropped: 0 },
  };
  return JSON.stringify({ jsonrpc: "2.0", method: "heartbeat", params });
};

test("part of a message is a sign of life", async () => {
  const { clock, session, wire } = await openSession();
  await clock.advance(5000);
  // The head of a masked text frame of 1,000 bytes, of which only a few come (RFC 6455, 5.2).
  wire.write(Buffer.from([0x81, 0xfe, 0x03, 0xe8, 0, 0, 0, 0, 0x61]));
  await until(() => session.lastHeardAt === 5000, "life");
  await clock.advance(5000);
  wire.write("a");
  await until(() => session.lastHeardAt === 10_000, "more life");
});

test("session time goes on from the proof, whatever the wall clock says", async () => {
  const { clock, session } = await openSession();
  clock.setWall(0);
  await clock.advance(61_500);
  expect(session.now()).toBe(1061);
});

test("who does not read is congested above 256 KiB, and cut above 4 MiB unsent", async () => {
  const { session, wire, isOver } = await openSession();
  wire.pause();
  const notice = { name: "node", version: 1 } as const;
  expect(session.isCongested).toBe(false);
  // What the kernel takes is not unsent.
  const jws = "x".repeat(1_000_000);
  const send = (): void => void session.peer.request("trigger.run", { jws }).catch(() => undefined);
  for (let sent = 0; !session.isCongested; sent += 1) {
    if (sent > 100) throw new Error("the kernel takes everything");
    send();
    await new Promise((resolve) => setImmediate(resolve));
  }
  session.peer.notify("document.changed", notice);
  expect(isOver()).toBe(false);
  for (let sent = 0; sent < 6; sent += 1) send();
  await until(isOver, "cut");
});

test("more than a hundred malformed messages end the session with 1008, and a hundred do not", async () => {
  const { node, closed, refused, beats } = await openSession();
  let answers = 0;
  node.on("message", () => (answers += 1));
  for (let i = 0; i < 100; i += 1) node.send("{");
  node.send(beat(1));
  await until(() => answers === 100 && beats.length === 1, "answers");
  expect(refused).toEqual([]);
  node.send("{");
  await until(() => closed() !== undefined, "close");
  expect([closed(), refused]).toEqual([1008, ["malformed"]]);
});

const { messagesPerSecond, bytesPerSecond, burstSeconds, patienceSeconds } = SESSION_BUDGET;
const BURST_MESSAGES = messagesPerSecond * burstSeconds;

/** Lets what is on its way arrive. */
async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

test("a message may be charged as many, which pauses reading", async () => {
  const { clock, session, node, beats, refused } = await openSession();
  session.spend(BURST_MESSAGES + 10 * messagesPerSecond);
  node.send(beat(1));
  await turns(50);
  expect(beats).toEqual([]);
  await clock.advance(10_000);
  await until(() => beats.length === 1, "the rest");
  expect(refused).toEqual([]);
});

test("a message full of values is charged as many, which pauses reading", async () => {
  const { clock, node, beats, refused } = await openSession();
  // Each is just below the limit of 1 MiB; three exceed the burst.
  const values = Array.from({ length: VALUES_PER_MESSAGE * 0.48 * BURST_MESSAGES }, () => 0);
  for (const id of [1, 2, 3]) node.send(JSON.stringify({ jsonrpc: "2.0", id, result: values }));
  await until(() => node.bufferedAmount === 0, "all to be sent");
  await turns(50);
  node.send(beat(1));
  await turns(50);
  expect(beats).toEqual([]);
  await clock.advance(20_000);
  await until(() => beats.length === 1, "the rest");
  expect(refused).toEqual([]);
});

test("more messages than the budget pause reading, and are read once it has recovered", async () => {
  const { clock, node, closed, refused, beats } = await openSession();
  for (let seq = 0; seq < 3 * BURST_MESSAGES; seq += 1) node.send(beat(seq));
  await until(() => beats.length >= BURST_MESSAGES / 2, "half a burst");
  await turns(200);
  // What one chunk held that was read already still arrives.
  expect(beats.length).toBeLessThan(BURST_MESSAGES + 1000);
  while (beats.length < 3 * BURST_MESSAGES) {
    await clock.advance(1000);
    await turns(10);
  }
  expect([closed(), refused]).toEqual([undefined, []]);
});

test.each([
  ["messages", (node: WebSocket) => node.send(beat(1))],
  ["pongs", (node: WebSocket) => node.pong()],
  ["bytes", (node: WebSocket) => node.send(beat(1) + " ".repeat(bytesPerSecond / 8))],
] as const)("a node that goes on with too many %s is closed with 1008", async (_, sendOne) => {
  // For each quarter of a second more than half of what is allowed in a second.
  const { clock, node, closed, refused } = await openSession();
  for (let turn = 0; refused.length === 0; turn += 1) {
    if (turn > 40 * patienceSeconds) throw new Error("it may go on");
    for (let n = 0; n < messagesPerSecond && node.bufferedAmount < bytesPerSecond / 2; n += 1) sendOne(node);
    await turns(5);
    await clock.advance(250);
  }
  await turns(20);
  await clock.advance(2000);
  await until(() => closed() !== undefined, "close");
  expect([closed(), refused]).toEqual([1008, ["too-many-messages"]]);
});

test.each([
  ['{"jsonrpc":"1.0","id":7,"method":"document.get"}', 7, -32600, "invalid-message"],
  ['{"jsonrpc":"2.0","id":8,"method":5}', 8, -32600, "invalid-message"],
  ['{"jsonrpc":"2.0","id":9,"method":"heartbeat","params":{"__proto__":{}}}', 9, -32600, "forbidden-key"],
  ['{"jsonrpc":"2.0","id":"9","method":5}', null, -32600, "invalid-message"],
  ['{"jsonrpc":"2.0","id":9,"error":{}}', null, -32600, "invalid-message"],
  ["[]", null, -32600, "invalid-message"],
  ['{"jsonrpc":"2.0","id":9,"method":"heartbeat"', null, -32700, "invalid-json"],
])("the malformed request %s is answered with its id where it has one", async (frame, id, code, name) => {
  const { node } = await openSession();
  const answered = once(node, "message") as Promise<[Buffer]>;
  node.send(frame);
  const [answer] = await answered;
  expect(JSON.parse(answer.toString())).toMatchObject({ id, error: { code, data: { code: name } } });
});

test("what a superseded session still sends is dropped", async () => {
  const { session, node, closed, beats } = await openSession();
  node.send(beat(1));
  await until(() => beats.length === 1, "first");
  session.end("superseded");
  node.send(beat(2));
  node.send(beat(3));
  await until(() => closed() !== undefined, "close");
  expect([closed(), beats]).toEqual([4002, [1]]);
});
