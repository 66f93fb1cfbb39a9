import type { Socket } from "node:net";
import type { WebSocket } from "ws";
import { describe, expect, test } from "vitest";
import { signJws } from "../../../../src/protocol/channel/jws.ts";
import { challenge, acceptNode, NONCE } from "../../../support/control-plane/hostile-control-plane.ts";
import { ISS, UID, type SigningKey } from "../../../support/control-plane/signing.ts";
import { someTurns } from "../../../support/until-still.ts";
import { waitFor } from "../../../support/wait-for.ts";
import { key, node, stranger } from "./rig.ts";

describe("a session", () => {
  test("opens, counts its attempts on disk, and has the control plane's time", async () => {
    const { up, clock, session, identity, online, unhandled } = await node((arrival) => acceptNode(arrival, key));
    const connection = await up();
    expect(session.status()).toMatchObject({ state: "online", attempt: 1, address: "127.0.0.1", sid: connection.sid });
    expect(await identity.counter.load()).toEqual({ is: "good", value: { n: clock.now() } });
    expect(connection.heartbeatMs).toBe(30_000);
    await clock.advance(5000);
    expect(connection.sessionNow()).toBe(1005);
    expect(online).toHaveLength(1);
    expect(clock.pendingTimers).toBe(1);
    expect(unhandled).toEqual([]);
  });

  test.each([
    [4001, "", "not-authentic", 30_000],
    [4002, "", "superseded", 45_000],
    [4003, "", "not-authentic", 30_000],
    [4004, "", "protocol-version", 3_600_000],
    [4008, "300", "too-many", 315_000],
    [4008, "999999999", "too-many", 3_780_000],
    [1001, "", "connection-closed", 4000],
  ])("ends by the close code %i %s", async (closeCode, reason, code, delay) => {
    const servers: WebSocket[] = [];
    const { up, waiting, offline } = await node(
      async (arrival) => void servers.push((await acceptNode(arrival, key)).socket),
    );
    await up();
    (await waitFor("the server", () => servers[0])).close(closeCode, reason);
    expect(await waiting()).toMatchObject({ code, delay });
    expect(offline()).toBe(1);
  });

  test.each<[string, () => SigningKey, string | undefined, string | undefined, string, number]>([
    ["a genuine one", () => key, undefined, undefined, "deleted", 3_600_000],
    ["one by a stranger", () => stranger, undefined, undefined, "not-authentic", 30_000],
    ["another node's", () => key, "11111111-1111-4111-8111-111111111111", undefined, "not-authentic", 30_000],
    ["one from another attempt", () => key, undefined, NONCE, "not-authentic", 30_000],
  ])("with a deletion statement, %s, waits accordingly", async (_what, signer, aud, nonce, code, delay) => {
    const { waiting, forgeries, deletions } = await node(async ({ accept }) => {
      const socket = await accept();
      const { cnonce } = await challenge(socket);
      const claims = { iss: ISS, aud: aud ?? UID, nonce: nonce ?? cnonce, iat: 1 };
      const jws = await signJws("holdfast-deleted+jwt", claims, signer());
      socket.send(JSON.stringify({ jsonrpc: "2.0", method: "session.deleted", params: { jws } }));
      socket.close(4003);
    });
    expect(await waiting()).toMatchObject({ code, delay });
    const isForged = code !== "deleted";
    expect(deletions()).toBe(isForged ? 0 : 1);
    expect(forgeries).toEqual(isForged ? ["a statement that this node was deleted: bad-signature"] : []);
  });

  test("with a genuine statement and forged ones is deleted, and verifies only a few", async () => {
    const { waiting, forgeries } = await node(async ({ accept }) => {
      const socket = await accept();
      const { cnonce } = await challenge(socket);
      const say = async (signer: SigningKey) => {
        const jws = await signJws("holdfast-deleted+jwt", { iss: ISS, aud: UID, nonce: cnonce, iat: 1 }, signer);
        socket.send(JSON.stringify({ jsonrpc: "2.0", method: "session.deleted", params: { jws } }));
      };
      await say(key);
      for (let i = 0; i < 20; i += 1) await say(stranger);
      socket.close(4003);
    });
    expect(await waiting()).toMatchObject({ code: "deleted" });
    expect(forgeries).toHaveLength(7);
  });

  test("has the result of its first heartbeat at once", async () => {
    const { up, clock, session } = await node((arrival) => acceptNode(arrival, key));
    const connection = await up();
    await clock.advance(1000);
    expect(session.status().heartbeatAt).toBeUndefined();
    connection.beaten();
    const sentAt = clock.now();
    await waitFor("the answer", () => session.status().heartbeatAt !== undefined);
    expect(session.status().heartbeatAt).toBe(sentAt);
  });

  test.each([86_400_000, -86_400_000])("keeps its ages when the wall clock is set by %i ms", async (ms) => {
    const { up, clock, session } = await node((arrival) => acceptNode(arrival, key));
    const connection = await up();
    await clock.advance(1000);
    connection.beaten();
    await waitFor("the answer", () => session.status().heartbeatAt !== undefined);
    await clock.advance(1000);
    const ages = (): readonly number[] => {
      const { since, lastOnlineAt = 0, heartbeatAt = 0 } = session.status();
      return [since, lastOnlineAt, heartbeatAt].map((at) => clock.now() - at);
    };
    const before = ages();
    clock.setWall(clock.now() + ms);
    expect(ages()).toEqual(before);
    expect(before.at(-1)).toBe(1000);
  });

  test("that falls silent is cut after 37.5 s", async () => {
    const { up, clock, waiting, offline, session } = await node(async (arrival) => {
      const { socket } = await acceptNode(arrival, key);
      socket.pong = () => undefined;
    });
    await up();
    for (let i = 0; i < 8; i += 1) await clock.advance(5000);
    expect(await waiting()).toMatchObject({ code: "silent" });
    expect(session.status().lastOnlineAt).toBe(session.status().since);
    expect(offline()).toBe(1);
  });

  test("counts its outage from its end, over any number of attempts", async () => {
    let arrivals = 0;
    let end = (): void => undefined;
    const { up, clock, waiting, session } = await node(async (arrival) => {
      arrivals += 1;
      if (arrivals > 1) {
        arrival.socket.destroy();
        return;
      }
      const { socket } = await acceptNode(arrival, key);
      end = () => socket.close();
    });
    await up();
    end();
    let { delay } = await waiting();
    const { since } = session.status();
    for (let attempts = 2; attempts < 4; attempts += 1) {
      // No further, or the attempt would be given up before the other end has seen it.
      await clock.advance(delay);
      await waitFor("another attempt", () => arrivals === attempts);
      ({ delay } = await waiting());
    }
    expect(session.status()).toMatchObject({ since, lastOnlineAt: since });
  });

  test("that is accepted and lost four times in ten minutes reports it while online, until the losses are over", async () => {
    const servers: WebSocket[] = [];
    const { up, clock, waiting, session } = await node(
      async (arrival) => void servers.push((await acceptNode(arrival, key)).socket),
    );
    for (let times = 1; times <= 4; times += 1) {
      await up();
      expect(session.status().lost).toBeUndefined();
      (await waitFor("the server", () => servers[times - 1])).close(1001, `cut ${times}`);
      const { delay } = await waiting();
      await clock.advance(delay);
    }
    await up();
    expect(session.status().lost?.message).toBe(
      "lost 4 times in the last ten minutes; the last cause: closed with 1001: cut 4",
    );
    clock.setWall(clock.now() + 86_400_000);
    expect(session.status().lost?.since).toBeGreaterThan(clock.now() - 600_000);
    await untilOver();
    expect(session.status().lost).toBeUndefined();

    async function untilOver(): Promise<void> {
      for (let i = 0; i < 300 && session.status().lost !== undefined; i += 1) {
        await clock.advance(2000);
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
    }
  });

  test("that receives only parts of a message is cut after 37.5 s", async () => {
    const sockets: Socket[] = [];
    const { up, clock, waiting } = await node(async (arrival) => {
      const { socket } = await acceptNode(arrival, key);
      socket.pong = () => undefined;
      // The head of a text frame of 900,000 bytes (RFC 6455 §5.2).
      const head = Buffer.alloc(10);
      head[0] = 0x81;
      head[1] = 127;
      head.writeBigUInt64BE(900_000n, 2);
      arrival.socket.write(head);
      sockets.push(arrival.socket);
    });
    await up();
    const socket = await waitFor("the server", () => sockets[0]);
    socket.on("error", () => undefined);
    for (let i = 0; i < 8; i += 1) {
      await new Promise((resolve) => socket.write("x", resolve));
      await clock.advance(5000);
    }
    expect(await waiting()).toMatchObject({ code: "silent" });
  });

  /** Advances time and traffic until the session has ended. */
  async function untilEnded({ clock, session }: Pick<Awaited<ReturnType<typeof node>>, "clock" | "session">) {
    for (let i = 0; i < 40 && session.status().state === "online"; i += 1) {
      await clock.advance(2000);
      await someTurns();
    }
  }

  test.each([
    ["pings", Buffer.from([0x89, 0x00])],
    ["garbage", Buffer.from([0x81, 0x03, 0x7b, 0x22, 0x61])],
  ])("that is flooded with %s is closed with 1008, reports it, and logs it once", async (what, frame) => {
    const sockets: Socket[] = [];
    const { up, clock, session, mistakes } = await node(async (arrival) => {
      await acceptNode(arrival, key);
      sockets.push(arrival.socket);
    });
    await up();
    const socket = await waitFor("the server", () => sockets[0]);
    socket.write(Buffer.concat(Array.from({ length: 200_000 }, () => frame)));
    await untilEnded({ clock, session });
    const { reason } = session.status();
    expect([reason?.code, reason?.message]).toEqual(["flooded", expect.stringContaining("more messages or bytes")]);
    expect(mistakes).toHaveLength(what === "garbage" ? 1 : 0);
  });

  test("whose peer does not read the answers it requested is cut, and reports it", async () => {
    const { up, clock, session } = await node(async (arrival) => {
      await acceptNode(arrival, key);
      arrival.socket.pause();
    });
    const connection = await up();
    const data = "x".repeat(900_000);
    const id = "5e0a6b1a-9f5e-4a52-8a2d-0a3f7c6b1d22";
    for (let seq = 0; seq < 14; seq += 1) connection.rpc.notify("trigger.progress", { id, seq, kind: "stdout", data });
    await untilEnded({ clock, session });
    expect(session.status().reason).toMatchObject({ code: "not-read" });
  });

  test("whose peer never reads is cut after 37.5 s", async () => {
    const sockets: Socket[] = [];
    const { up, clock, session } = await node(async (arrival) => {
      await acceptNode(arrival, key);
      arrival.socket.pause();
      sockets.push(arrival.socket);
    });
    const connection = await up();
    await waitFor("the other end to stop", () => sockets.length === 1);
    for (let i = 0; i < 200 && !connection.isCongested(); i += 1) {
      connection.rpc.notify("trigger.progress", { id: UID, seq: i, kind: "stdout", data: "x".repeat(100_000) });
    }
    expect(connection.isCongested()).toBe(true);
    const drained = connection.drained();
    drained.catch(() => undefined);
    for (let i = 0; i < 8; i += 1) await clock.advance(5000);
    expect(session.status()).toMatchObject({ state: "waiting", reason: { code: "silent" } });
    await expect(drained).rejects.toMatchObject({ code: "silent" });
    expect(clock.pendingTimers).toBe(1);
  });

  test("answers unknown and malformed requests", async () => {
    const answers: unknown[] = [];
    const sockets: WebSocket[] = [];
    const { up } = await node(async (arrival) => sockets.push((await acceptNode(arrival, key)).socket));
    await up();
    const socket = await waitFor("the server", () => sockets[0]);
    socket.on("message", (data: Buffer) => void answers.push(JSON.parse(data.toString("utf8"))));
    const frames = [{ method: "a" }, { id: 1, method: "no-such" }, { id: 2, method: "a.b.c" }, { id: 3, method: 5 }];
    for (const frame of frames) socket.send(JSON.stringify({ jsonrpc: "2.0", ...frame }));
    await waitFor("the answers", () => answers.length === 3);
    expect(new Map(answers.map((answer) => [(answer as { id: number }).id, answer]))).toMatchObject(
      new Map([
        [1, { error: { code: -32601 } }],
        [2, { error: { code: -32601 } }],
        [3, { error: { code: -32600 } }],
      ]),
    );
  });

  test("accepts larger messages, up to 1 MiB", async () => {
    const servers: WebSocket[] = [];
    const { up, waiting } = await node(async (arrival) => void servers.push((await acceptNode(arrival, key)).socket));
    await up();
    const server = await waitFor("the server", () => servers[0]);
    const params = { jws: `a.${"b".repeat(500_000)}.c` };
    server.send(JSON.stringify({ jsonrpc: "2.0", id: 5, method: "trigger.run", params }));
    server.once("message", () => server.send("x".repeat(1_100_000)));
    expect((await waiting()).delay).toBe(4000);
  });

  test("is closed without remains", async () => {
    const { up, session, plane, clock } = await node((arrival) => acceptNode(arrival, key));
    const connection = await up();
    const call = connection.rpc.request("document.get", { name: "node", have: 0 });
    session.close();
    await expect(call).rejects.toMatchObject({ code: "shutdown" });
    await waitFor("the socket to close", () => plane.openSockets === 0);
    expect(session.status().state).toBe("stopped");
    expect(clock.pendingTimers).toBe(0);
    await expect(connection.drained()).rejects.toMatchObject({ code: "shutdown" });
  });

  test("survives a suspend of the machine, and counts that time", async () => {
    const { up, session, clock, online } = await node((arrival) => acceptNode(arrival, key));
    const connection = await up();
    await clock.advance(1000);
    clock.sleepMachine(3_600_000);
    session.wake("resumed");
    expect([session.status().state, session.status().attempt, online.length]).toEqual(["online", 1, 1]);
    expect(connection.sessionNow()).toBe(4601);
    // A wall clock that is set does not mean a suspend.
    clock.setWall(0);
    expect(connection.sessionNow()).toBe(4601);
  });

  test("reconnects after a loss", async () => {
    const servers: WebSocket[] = [];
    const { up, session, clock, online } = await node(async (arrival) => {
      servers.push((await acceptNode(arrival, key)).socket);
    });
    await up();
    (await waitFor("the server", () => servers[0])).terminate();
    await waitFor("the loss", () => session.status().state === "waiting");
    await clock.advance(4000);
    await up();
    expect(online).toHaveLength(2);
    expect(session.status().attempt).toBe(2);
  });
});
