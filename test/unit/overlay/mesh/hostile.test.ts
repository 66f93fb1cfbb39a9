import { once } from "node:events";
import { connect as connectHttp2, performServerHandshake, type ClientHttp2Session } from "node:http2";
import { connect, type Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { FakeClock } from "../../../support/fake-clock.ts";
import { connectFrame, FRAME, frame, PREFACE, resetFrame } from "../../../support/overlay/raw-http2.ts";
import {
  closed,
  connectTo,
  dialHop,
  echo,
  gatewayRig,
  inbound,
  outbound,
  textOf,
} from "../../../support/overlay/mesh-rig.ts";
import { meshIdentity } from "../../../support/overlay/mesh-identity.ts";
import { TESTS_ALL } from "../../../support/sample.ts";
import { waitFor } from "../../../support/wait-for.ts";

const [a, b, stranger] = await Promise.all([meshIdentity(), meshIdentity(), meshIdentity()]);

function raw(port: number, localAddress = "127.0.0.1"): Socket {
  const socket = connect({ port, host: "127.0.0.1", localAddress }).on("error", () => undefined);
  onTestFinished(() => void socket.destroy());
  return socket;
}

/** Reports whether a node is reachable through the gateway. */
async function works(session: ClientHttp2Session, uid: string): Promise<void> {
  const { stream, answer } = await connectTo(session, uid);
  expect(answer[":status"]).toBe(200);
  stream.end("ping");
  expect(await textOf(stream)).toBe("ping");
}

const [CLOSES, RESETS] = TESTS_ALL ? [10_000, 400] : [400, 150];

describe("an unauthenticated peer", () => {
  it("is rejected for its key before any HTTP/2", async () => {
    const rig = await gatewayRig([a]);
    const socket = await dialHop(rig.port, stranger, "h2");
    let received = 0;
    socket.on("data", (chunk: Buffer) => (received += chunk.length));
    socket.write(PREFACE);
    await closed(socket);
    expect(received).toBe(0);
    expect(rig.server.state().refused).toEqual({ "unknown-key": 1 });
    expect(rig.server.clients()).toEqual([]);
  });

  it("may be a node that is not allowed to dial", async () => {
    const rig = await gatewayRig([]);
    await rig.apply([], { peers: [{ uid: a.uid, fqdn: "a.example", key: a.key }] });
    const socket = await dialHop(rig.port, a, "holdfast-h2r");
    await closed(socket.resume());
    expect(rig.server.state().refused).toEqual({ "unknown-key": 1 });
  });

  it("has ten seconds", async () => {
    const clock = new FakeClock();
    const rig = await gatewayRig([a], { clock });
    const socket = raw(rig.port);
    await once(socket, "connect");
    // The start of a ClientHello, and nothing after it.
    socket.write(Buffer.from("16030102000100", "hex"));
    await waitFor("it is waited for", () => clock.pendingTimers > 0);
    await clock.advance(9_999);
    expect(rig.server.state().refused).toEqual({});
    await clock.advance(1);
    await closed(socket);
    expect(rig.server.state().refused).toEqual({ timeout: 1 });
  });

  it("may have sixteen connections from one address, which take nothing from others", async () => {
    const rig = await gatewayRig([a]);
    const silent = Array.from({ length: 17 }, () => raw(rig.port));
    await waitFor("one is turned away", () => silent.filter((socket) => socket.closed).length === 1);
    expect(rig.server.state().refused).toEqual({ "too-many": 1 });
    const other = raw(rig.port, "127.0.0.2");
    await once(other, "connect");
    silent.find((socket) => !socket.closed)?.destroy();
    await waitFor("a place is free again", () => rig.server.state().refused["closed"] === 1);
    await outbound(rig.port, a);
  });

  it("is limited in number, and the longest silent one makes room", async () => {
    const clock = new FakeClock();
    const rig = await gatewayRig([a], { clock, limits: { inAll: 3 } });
    const silent = ["127.0.0.2", "127.0.0.3", "127.0.0.4"].map((address) => raw(rig.port, address));
    await Promise.all(silent.map((socket) => once(socket, "connect")));
    await waitFor("all are waited for", () => clock.pendingTimers >= 3);
    await closed(raw(rig.port));
    expect(rig.server.state().refused).toEqual({ "too-many": 1 });
    await clock.advance(2_000);
    await outbound(rig.port, a);
    await waitFor("one was turned away", () => silent.filter(({ closed }) => closed).length === 1);
  });
});

describe("a peer that keeps failing", () => {
  it("is ignored for a while, which bounds the cost of handshakes; others are not", async () => {
    const clock = new FakeClock();
    const rig = await gatewayRig([a], { clock, limits: { failures: 3 } });
    for (let failure = 0; failure < 3; failure += 1) {
      const socket = await dialHop(rig.port, stranger, "h2");
      await closed(socket.resume());
    }
    await expect(dialHop(rig.port, a, "h2")).rejects.toMatchObject({ code: "tls" });
    expect(rig.server.state().refused).toEqual({ "unknown-key": 3, "too-many": 1 });
    await clock.advance(1000);
    await outbound(rig.port, a);
  });

  it("is limited later if it closes before sending data, as traceroute does", async () => {
    const clock = new FakeClock();
    const rig = await gatewayRig([a], { clock, limits: { failures: 2 } });
    for (let probe = 1; probe <= 16; probe += 1) {
      raw(rig.port).end();
      await waitFor("it has left", () => rig.server.state().refused["closed"] === probe);
    }
    await outbound(rig.port, a);
    raw(rig.port).end();
    await waitFor("it has left, too", () => rig.server.state().refused["closed"] === 17);
    await expect(dialHop(rig.port, a, "h2")).rejects.toMatchObject({ code: "tls" });
    expect(rig.server.state().refused).toEqual({ closed: 17, "too-many": 1 });
  });
});

describe("an authenticated node that misbehaves", () => {
  const both = async (more: Parameters<typeof gatewayRig>[1] = {}) => {
    const rig = await gatewayRig([a, b, stranger], more);
    let opened = 0;
    await inbound(rig, b, (stream) => {
      opened += 1;
      echo(stream);
    });
    return { rig, good: await outbound(rig.port, a), opened: () => opened };
  };

  /** A session with raw frames. */
  const rawSession = async (port: number): Promise<TLSSocket> => {
    const socket = await dialHop(port, stranger, "h2");
    socket.resume().write(Buffer.concat([PREFACE, frame(FRAME.settings, 0, 0)]));
    return socket;
  };

  it.each([
    ["a header of 9 KiB", { "x-long": "x".repeat(9 * 1024) }],
    ["forty headers", Object.fromEntries(Array.from({ length: 40 }, (_, at) => [`x-${at}`, "y"]))],
  ])("has a stream refused with %s, and nothing else", async (_, headers) => {
    const { rig, good } = await both();
    const socket = await dialHop(rig.port, stranger, "h2");
    const bad = connectHttp2("https://gateway", { createConnection: () => socket });
    await once(bad, "remoteSettings");
    const stream = bad.request(
      { ":method": "CONNECT", ":authority": `${b.uid}:443`, ...headers },
      { endStream: false },
    );
    stream.on("error", () => undefined);
    let isAnswered = false;
    stream.on("response", () => (isAnswered = true));
    await closed(stream);
    expect(isAnswered).toBe(false);
    await works(good, b.uid);
    await works(bad, b.uid);
  });

  it.each([
    ["SETTINGS", frame(FRAME.settings, 0, 0)],
    ["PING", frame(FRAME.ping, 0, 0, Buffer.alloc(8))],
  ])("is disconnected after a flood of %s", async (_, flood) => {
    const { rig, good } = await both();
    const socket = await rawSession(rig.port);
    socket.write(Buffer.concat(Array.from({ length: 10_000 }, () => flood)));
    await closed(socket);
    await works(good, b.uid);
  });

  it("is disconnected after a flood of empty frames", async () => {
    const { rig, good } = await both();
    const socket = await rawSession(rig.port);
    socket.write(connectFrame(1, `${b.uid}:443`));
    socket.write(Buffer.concat(Array.from({ length: 10_000 }, () => frame(FRAME.data, 0, 1))));
    await closed(socket);
    await works(good, b.uid);
  });

  it("gains little by rapid resets, is not read for a while, and keeps its session (CVE-2023-44487)", async () => {
    const clock = new FakeClock();
    const { rig, good, opened } = await both({ clock });
    const socket = await rawSession(rig.port);
    const flood = async (): Promise<void> => {
      for (let from = 0; from < 200_000; from += 500) {
        const ids = Array.from({ length: 500 }, (_, at) => (from + at) * 2 + 1);
        const frames = ids.flatMap((id) => [connectFrame(id, `${b.uid}:443`), resetFrame(id)]);
        if (!socket.write(Buffer.concat(frames))) await once(socket, "drain");
      }
    };
    // It is paused, and never ends.
    let isDone = false;
    void flood().then(
      () => (isDone = true),
      () => undefined,
    );
    await waitFor("it has opened many", () => opened() > 50);
    const read = () => rig.server.clients().find(({ peer }) => peer === stranger.uid)?.bytesIn ?? 0;
    let before = -1;
    await waitFor("it is read from no more", async () => {
      const isSame = read() === before;
      before = read();
      await works(good, b.uid);
      return isSame;
    });
    await clock.advance(500);
    await waitFor("it is read from again", () => read() > before);
    expect(opened()).toBeLessThan(1000);
    expect([isDone, socket.destroyed]).toEqual([false, false]);
  });

  it("names another node as the source, and counts as itself", async () => {
    const relays = [{ source: a.uid, dest: b.uid }];
    const rig = await gatewayRig([a, b, stranger]);
    await rig.apply([a, b, stranger], { server: { addresses: ["127.0.0.1"], port: rig.port, relays } });
    await inbound(rig, b);
    const headers = { "holdfast-source": a.uid, "holdfast-hops": "1" };
    const { answer } = await connectTo(await outbound(rig.port, stranger), b.uid, headers);
    expect(answer).toMatchObject({ ":status": 403, "holdfast-reason": "relay-refused" });
    await works(await outbound(rig.port, a), b.uid);
  });

  it("is not found under another uid", async () => {
    const rig = await gatewayRig([a, b, stranger]);
    // A request for b does not reach the present node, whatever that would answer.
    await inbound(rig, stranger);
    const { answer } = await connectTo(await outbound(rig.port, a), b.uid);
    expect(answer).toMatchObject({ ":status": 502, "holdfast-reason": "peer-absent" });
  });
});

describe("a gateway survives", () => {
  it(`${CLOSES} ordinary closes on one session`, async () => {
    const rig = await gatewayRig([a, b]);
    const node = await inbound(rig, b);
    const session = await outbound(rig.port, a);
    let done = 0;
    const one = async (): Promise<number> => {
      const { stream, answer } = await connectTo(session, b.uid);
      expect(answer[":status"]).toBe(200);
      // Every second one ends by a reset, as flows do.
      if ((done += 1) % 2 === 0) stream.close(8);
      else stream.end();
      await once(stream.resume(), "close");
      return done;
    };
    const worker = async (): Promise<void> => {
      while ((await one()) < CLOSES);
    };
    await Promise.all(Array.from({ length: 16 }, worker));
    await works(session, b.uid);
    expect([session.destroyed, node.destroyed]).toEqual([false, false]);
    expect(rig.server.clients()).toMatchObject([{ sessions: 1 }, { sessions: 1 }]);
  });

  it(`${RESETS} resets during transfers, from either side`, async () => {
    const rig = await gatewayRig([a, b]);
    let turn = 0;
    const node = await inbound(rig, b, (stream) => {
      stream.respond({ ":status": 200 });
      turn += 1;
      if (turn % 2 === 0) stream.once("data", () => stream.close(8)).write(Buffer.alloc(100_000));
      else stream.resume().write(Buffer.alloc(100_000));
    });
    const session = await outbound(rig.port, a);
    for (let count = 0; count < RESETS; count += 1) {
      const { stream } = await connectTo(session, b.uid);
      stream.write(Buffer.alloc(300_000));
      stream.once("data", () => stream.close(8));
      await closed(stream);
    }
    await waitFor("all is over", () => rig.server.activeRelays === 0);
    expect([session.destroyed, node.destroyed]).toEqual([false, false]);
  });

  it("two hundred streams without a reader, in bounded memory", async () => {
    const memoryBytes = 16 * 1024 * 1024;
    const rig = await gatewayRig([a, b], { memoryBytes });
    // Streams are answered and never read, and their windows are tiny.
    const settings = { initialWindowSize: 65_535, maxConcurrentStreams: 256 };
    const node = performServerHandshake(await dialHop(rig.port, b, "holdfast-h2r"), { settings });
    node.on("stream", (stream) => stream.on("error", () => undefined).respond({ ":status": 200 }));
    const session = await outbound(rig.port, a);
    await waitFor("both are there", () => rig.server.clients().length === 2);
    const chunk = Buffer.alloc(64 * 1024);
    const opened = await Promise.all(Array.from({ length: 200 }, () => connectTo(session, b.uid)));
    let most = 0;
    for (const { stream } of opened) {
      for (let sent = 0; sent < 512 * 1024; sent += chunk.length) stream.write(chunk);
    }
    await waitFor("some are reset", () => {
      most = Math.max(most, rig.receiveBuffers.held());
      return rig.cut.length > 100;
    });
    await waitFor("the rest is within the bound", () => rig.receiveBuffers.held(a.uid) <= memoryBytes / 8);
    expect(most).toBeLessThan(memoryBytes / 2);
    expect(new Set(rig.cut)).toEqual(new Set([a.uid]));
    expect(session.destroyed).toBe(false);
  });

  it("a loop of gateways, which ends at the third", async () => {
    const seen: number[] = [];
    const first = await gatewayRig([a, b], {
      onward: async (peer, { hops }) => {
        seen.push(hops);
        const session = await outbound(first.port, b);
        const { stream, answer } = await connectTo(session, peer, { "holdfast-hops": String(hops) });
        if (Number(answer[":status"]) !== 200)
          throw Object.assign(new Error("refused"), { code: answer["holdfast-reason"] });
        return { stream };
      },
    });
    const { answer } = await connectTo(await outbound(first.port, a), stranger.uid);
    expect(answer[":status"]).not.toBe(200);
    expect(seen).toEqual([1, 2, 3]);
    const direct = await connectTo(await outbound(first.port, a), stranger.uid, { "holdfast-hops": "3" });
    expect(direct.answer).toMatchObject({ ":status": 508, "holdfast-reason": "relay-refused" });
  });
});
