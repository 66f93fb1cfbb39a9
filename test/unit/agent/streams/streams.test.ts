import { randomUUID } from "node:crypto";
import { pino } from "pino";
import { expect, test } from "vitest";
import { containerExec } from "../../../../src/agent/streams/container-exec.ts";
import type { OpenedStream, StreamKind } from "../../../../src/agent/streams/kind.ts";
import { StreamLink } from "../../../../src/agent/streams/stream-link.ts";
import { Streams } from "../../../../src/agent/streams/streams.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { framedStream, type FrameEnd } from "../../../../src/host/net/frame-socket.ts";
import { STREAM_IDLE_MS, STREAM_OPEN_MS } from "../../../../src/protocol/channel/streams.ts";
import type { StreamClaims } from "../../../../src/protocol/documents/claims.ts";
import { Bulk } from "../../../support/terminal/bulk-terminal.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { PtyCompute } from "../../../support/containers/pty-compute.ts";
import { waitFor } from "../../../support/wait-for.ts";
import { duplexPair } from "node:stream";

const never = new AbortController().signal;
const target = { url: "ws://127.0.0.1:1/agent/v1/session", pins: [], knownAddresses: [], timeoutMs: 1000 };

function setUp(options: { type?: "Node" | "Agent"; state?: "ACTIVE" | "INACTIVE"; clock?: FakeClock } = {}) {
  const compute = new PtyCompute();
  const terminals: Bulk[] = [];
  compute.made.set("web", () => {
    const terminal = new Bulk(0);
    terminals.push(terminal);
    return terminal;
  });
  const dialled: string[] = [];
  const streams = new Streams({
    clock: options.clock ?? systemClock(),
    log: pino({ level: "silent" }),
    kinds: [containerExec(() => compute)],
    dial: (_, ticket) => {
      dialled.push(ticket);
      return Promise.reject(new Error("nobody is there"));
    },
    node: () => ({ type: options.type ?? "Node", state: options.state ?? "ACTIVE" }),
  });
  const open = (params: unknown = { container: "web" }, kind = "container-exec") =>
    streams.prepare(kind, params, "ann", never);
  return { compute, terminals, streams, open, dialled };
}

function claims(change: Partial<StreamClaims> = {}): StreamClaims {
  const ids = { iss: "https://cp.example", aud: randomUUID(), sid: randomUUID(), jti: randomUUID() };
  const what = { kind: "container-exec", params: { container: "web" }, user: "ann", th: "t".repeat(43) };
  return { ...ids, ...what, iat: 100, exp: 160, ...change };
}

class OpenedThing implements OpenedStream {
  readonly subject = "thing";
  carry = () => Promise.resolve({ type: "exit" as const, code: 0 });
  command = () => undefined;
  close = () => Promise.resolve();
}

/** The other side of a stream, over a pair of pipes. */
function otherSide() {
  const [here, there] = duplexPair();
  const reported: string[] = [];
  let end: FrameEnd | undefined;
  const socket = framedStream(there, 1024 * 1024);
  socket.listen({ onData: () => undefined, onText: (text) => reported.push(text), onEnd: (how) => (end = how) });
  return { here: framedStream(here, 1024 * 1024), socket, reported, end: () => end, wire: there };
}

test("obeys an order once, and releases what it opened if the dial fails", async () => {
  const { streams, terminals, dialled } = setUp();
  const order = { claims: claims(), ticket: "t".repeat(43), target, session: never };
  await streams.obey(order);
  await waitFor("the terminal to be let go", () => terminals[0]?.stream.destroyed);
  expect(dialled).toEqual([order.ticket]);
  await expect(streams.obey(order)).rejects.toMatchObject({ code: "replayed" });
  expect(terminals.length).toBe(1);
});

test.each([
  ["another kind", {}, { container: "web" }, "shell", "not-supported"],
  ["an agent", { type: "Agent" }, { container: "web" }, "container-exec", "not-supported"],
  ["an INACTIVE node", { state: "INACTIVE" }, { container: "web" }, "container-exec", "inactive"],
  ["no container", {}, {}, "container-exec", "invalid-body"],
  ["absurd columns", {}, { container: "web", cols: 1e6 }, "container-exec", "invalid-body"],
  ["an unknown field", {}, { container: "web", user: "root" }, "container-exec", "invalid-body"],
  ["a container that is not there", {}, { container: "none" }, "container-exec", "not-found"],
] as const)("refuses %s without a slot", async (_, node, params, kind, code) => {
  const { open, compute } = setUp(node);
  for (let i = 0; i < 9; i += 1) await expect(open(params, kind)).rejects.toMatchObject({ code });
  expect(compute.terminals).toEqual([]);
});

test("refuses the ninth until one of the others ends", async () => {
  const { open } = setUp();
  const eight = await Promise.all(Array.from({ length: 8 }, () => open()));
  await expect(open()).rejects.toMatchObject({ code: "busy" });
  await eight[0]?.discard();
  await eight[0]?.discard();
  await open();
  await expect(open()).rejects.toMatchObject({ code: "busy" });
});

test("gives up what does not open in time, and not what has opened", async () => {
  const clock = new FakeClock();
  const signals: AbortSignal[] = [];
  const kind: StreamKind = {
    kind: "slow",
    needsDataPlane: false,
    agents: true,
    open(params, signal) {
      signals.push(signal);
      if (params === "at once") return Promise.resolve(new OpenedThing());
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)));
    },
  };
  const streams = new Streams({
    clock,
    log: pino({ level: "silent" }),
    kinds: [kind],
    dial: () => Promise.reject(new Error("nobody is there")),
    node: () => ({ type: "Node", state: "ACTIVE" }),
  });
  const opened = await streams.prepare("slow", "at once", "ann", never);
  const failed = expect(streams.prepare("slow", "never", "ann", never)).rejects.toMatchObject({ code: "timeout" });
  await clock.advance(STREAM_OPEN_MS);
  await failed;
  expect(signals.map(({ aborted }) => aborted)).toEqual([false, true]);
  await opened.discard();
});

test("endless goodbyes fill no memory", async () => {
  const { compute } = setUp();
  const opened = await containerExec(() => compute).open({ container: "web" }, never);
  const link = new StreamLink({ socket: otherSide().here, clock: systemClock(), onCommand: () => undefined });
  for (let i = 0; i < 200_000; i += 1) opened.command({ type: "close" }, link);
  expect(link.readableLength).toBe(link.readableHighWaterMark);
  link.destroy();
  await opened.close();
});

test("ends after an hour without data, with a reason; pings do not count", async () => {
  const clock = new FakeClock();
  const { open, terminals } = setUp({ clock });
  const other = otherSide();
  const joined = (await open()).join(other.here, never, 60_000);
  for (let at = 0; at < STREAM_IDLE_MS - 30_000; at += 15_000) {
    other.socket.send(JSON.stringify({ type: "resize", cols: 80, rows: 24 }));
    await new Promise((resolve) => setImmediate(resolve));
    await clock.advance(15_000);
  }
  expect(other.reported).toEqual([]);
  for (let i = 0; i < 3; i += 1) {
    other.socket.send(JSON.stringify({ type: "resize", cols: 80, rows: 24 }));
    await new Promise((resolve) => setImmediate(resolve));
    await clock.advance(15_000);
  }
  await joined;
  expect(other.reported.map((text) => JSON.parse(text) as unknown)).toMatchObject([{ type: "error", code: "timeout" }]);
  expect(terminals[0]?.stream.destroyed).toBe(true);
});

test.each(["nonsense", "{}", '{"type":"resize","cols":0,"rows":1}', '{"type":"close","now":true}', "x".repeat(9000)])(
  "ends on the text frame %.20s",
  async (text) => {
    const { open, terminals } = setUp();
    const other = otherSide();
    const joined = (await open()).join(other.here, never);
    other.socket.send(text);
    await joined;
    expect(terminals[0]?.stream.destroyed).toBe(true);
  },
);

test("ends on malformed frames: an unknown kind, an absurd length", async () => {
  for (const header of [
    Buffer.from([9, 0, 0, 0, 0]),
    Buffer.from([0, 0x7f, 0xff, 0xff, 0xff]),
    Buffer.from([2, 0, 0, 0, 0]),
  ]) {
    const { open, terminals } = setUp();
    const other = otherSide();
    const joined = (await open()).join(other.here, never);
    other.wire.write(header);
    await joined;
    expect(terminals[0]?.stream.destroyed).toBe(true);
  }
});
