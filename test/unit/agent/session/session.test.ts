import { mkdirSync } from "node:fs";
import type { Socket } from "node:net";
import { join } from "node:path";
import { pino } from "pino";
import type { WebSocket } from "ws";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { SessionCounter, generateKeys, identityFiles } from "../../../../src/agent/identity/identity.ts";
import { nodeParty } from "../../../../src/agent/identity/party.ts";
import type { Connection } from "../../../../src/agent/session/attempt.ts";
import { Session } from "../../../../src/agent/session/session.ts";
import { webSocketTransport } from "../../../../src/agent/session/transport.ts";
import { hostDialler } from "../../../../src/host/dial.ts";
import { hostFiles } from "../../../../src/host/files.ts";
import { signJws } from "../../../../src/protocol/jws.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import {
  challenge,
  HostileControlPlane,
  letIn,
  NONCE,
  prove,
  type Arrival,
} from "../../../support/hostile-control-plane.ts";
import { ISS, keysClaims, nodeIdentity, signingKey, UID, type SigningKey } from "../../../support/signing.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { waitFor } from "../../../support/wait-for.ts";

let root: SigningKey;
let key: SigningKey;
let stranger: SigningKey;

beforeAll(async () => {
  [root, key, stranger] = await Promise.all([signingKey(), signingKey(), signingKey()]);
});

/** A session with real keys and sockets, over a clock that stands still; half is every random number. */
async function node(script: (arrival: Arrival) => unknown, url?: string, known: string[] = []) {
  const unhandled: unknown[] = [];
  const plane = await HostileControlPlane.start((arrival) => {
    Promise.resolve(script(arrival)).catch((error: unknown) => unhandled.push(error));
  });
  const directory = tempDir();
  mkdirSync(join(directory, "s/identity"), { recursive: true });
  const clock = new FakeClock();
  const registration = {
    node: { ...nodeIdentity, session: url ?? plane.url },
    controlPlane: { iss: ISS, keys: keysClaims(root, [key]) },
  };
  const identity = identityFiles(hostFiles(directory), "/s");
  if (known.length > 0) await identity.addresses.save({ addresses: known });
  const party = await nodeParty({
    clock,
    addresses: identity.addresses,
    counter: await SessionCounter.open(
      identity.counter,
      () => clock.now(),
      () => undefined,
    ),
    keys: generateKeys(),
    registration: () => registration,
    bootId: "5e0a6b1a-9f5e-4a52-8a2d-0a3f7c6b1d22",
    version: "0",
    have: () => ({ keys: 1, node: 0, cluster: 0, domain: 0 }),
    reportedVersion: () => 0,
    refreshKeys: () => Promise.resolve(false),
    onFault: () => undefined,
  });
  const online: Connection[] = [];
  let offline = 0;
  const session = new Session({
    clock,
    log: pino({ level: "silent" }),
    open: webSocketTransport(hostDialler(clock, { noProxy: [] }), () => clock.now()),
    party,
    handlers: () => ({ "trigger.run": () => ({ ran: true }) }),
    random: () => 0.5,
    onOnline: (connection) => void online.push(connection),
    onOffline: () => void (offline += 1),
  });
  onTestFinished(() => session.close());
  session.start();
  const waiting = async () => {
    await waitFor(
      "the session to wait",
      () => session.status().state === "waiting" && session.status().reason !== undefined,
    );
    await waitFor("the sockets to close", () => plane.openSockets === 0);
    expect(clock.pendingTimers).toBeLessThanOrEqual(1);
    const { reason, retryAt = 0 } = session.status();
    return { code: reason?.code, message: reason?.message, delay: retryAt - clock.now() };
  };
  const up = () => waitFor("the session", () => session.connection);
  return { plane, clock, session, online, waiting, up, identity, unhandled, offline: () => offline };
}

const FAILED = 2000;
const http = (status: string, headers = "") => `HTTP/1.1 ${status}\r\nconnection: close\r\n${headers}\r\n`;

describe("before the upgrade", () => {
  test.each<[string, string, string, number]>([
    ["401", http("401 Unauthorized"), "HTTP 401", FAILED],
    ["a redirect", http("302 Found", "location: ws://127.0.0.1:1/\r\n"), "HTTP 302", FAILED],
    ["HTML", `${http("200 OK", "content-type: text/html\r\n")}<html>`, "HTTP 200", FAILED],
    ["429 with Retry-After", http("429 Too Many", "retry-after: 120\r\n"), "HTTP 429", 126_000],
    ["503 with a date", http("503 Busy", "retry-after: Thu, 01 Jan 2026 00:02:00 GMT\r\n"), "HTTP 503", 126_000],
    ["429 with a day", http("429 Too Many", "retry-after: 86400\r\n"), "HTTP 429", 3_780_000],
    ["429 without a time", http("429 Too Many"), "HTTP 429", FAILED],
    ["garbage", "\0\0\0garbage\r\n\r\n", "", FAILED],
    ["nothing", "", "", FAILED],
  ])("%s is refused", async (_what, text, message, delay) => {
    const { waiting, online } = await node(({ answerRaw }) => answerRaw(text));
    const end = await waiting();
    expect(end).toMatchObject({ code: "upgrade-refused", delay });
    expect(end.message).toContain(message);
    expect(online).toEqual([]);
  });

  test("a reset", async () => {
    const { waiting } = await node(({ socket }) => socket.resetAndDestroy());
    expect(await waiting()).toMatchObject({ code: "upgrade-refused", delay: FAILED });
  });

  test("a closed port", async () => {
    const { waiting } = await node(() => undefined, "ws://127.0.0.1:1/agent/v1/session");
    expect(await waiting()).toMatchObject({ code: "connect-failed", delay: FAILED });
  });

  test("ws:// towards another machine", async () => {
    const { waiting } = await node(() => undefined, "ws://192.0.2.1/agent/v1/session");
    expect(await waiting()).toMatchObject({ code: "insecure", delay: FAILED });
  });

  test("ws:// towards a name below localhost that means another machine", async () => {
    const { waiting, identity } = await node(() => undefined, `ws://${"a".repeat(64)}.localhost/agent/v1/session`, [
      "192.0.2.1",
    ]);
    expect(await waiting()).toMatchObject({ code: "insecure", delay: FAILED });
    expect(await identity.addresses.load()).toMatchObject({ value: { addresses: ["192.0.2.1"] } });
  });

  test("silence is cut after ten seconds", async () => {
    const { plane, clock, waiting } = await node(({ socket }) => socket.resume());
    await waitFor("the connection", () => plane.openSockets === 1);
    await clock.advance(10_000);
    expect(await waiting()).toMatchObject({ code: "handshake-timeout", delay: FAILED });
  });
});

describe("before the proof", () => {
  test("silence after the upgrade, or after the hello, is cut after ten seconds", async () => {
    for (const then of [() => undefined, challenge]) {
      let isReady = false;
      const { clock, waiting } = await node(async ({ accept }) => {
        await then(await accept());
        isReady = true;
      });
      await waitFor("the upgrade", () => isReady);
      await clock.advance(10_000);
      expect(await waiting()).toMatchObject({ code: "handshake-timeout" });
    }
  });

  test("a challenge is answered once, however often it comes", async () => {
    const hellos: unknown[] = [];
    const { up, online, identity, clock } = await node(async (arrival) => {
      const socket = await arrival.accept();
      socket.on("message", (data: Buffer) => void hellos.push(data.toString("utf8")));
      const again = JSON.stringify({
        jsonrpc: "2.0",
        method: "session.challenge",
        params: { nonce: NONCE, protocol: 1 },
      });
      for (let i = 0; i < 20; i += 1) socket.send(again);
      const hello = await challenge(socket);
      await prove(socket, hello, key);
    });
    const connection = await up();
    const answer = connection.rpc.request("document.get", { name: "node", have: 0 });
    answer.catch(() => undefined);
    await waitFor("the request behind the hello", () => hellos.length === 2);
    expect(hellos[1]).toContain("document.get");
    expect(online).toHaveLength(1);
    expect(await identity.counter.load()).toEqual({ is: "good", value: { n: clock.now() } });
  });

  test.each<[string, () => [SigningKey, object], string]>([
    ["a foreign audience", () => [key, { aud: "11111111-1111-4111-8111-111111111111" }], "not-authentic"],
    ["a foreign issuer", () => [key, { iss: "http://127.0.0.1:1" }], "not-authentic"],
    ["another nonce", () => [key, { nonce: NONCE }], "not-authentic"],
    ["an unknown key", () => [stranger, {}], "bad-signature"],
    ["a forged kid", () => [{ ...stranger, kid: key.kid }, {}], "bad-signature"],
  ])("a proof with %s is not believed", async (_what, wrong, code) => {
    const { waiting, online } = await node(async ({ accept }) => {
      const socket = await accept();
      const [signer, changes] = wrong();
      await prove(socket, await challenge(socket), signer, changes);
    });
    expect(await waiting()).toMatchObject({ code, delay: code === "not-authentic" ? 30_000 : FAILED });
    expect(online).toEqual([]);
  });

  test("garbage and calls are not heard, and the handshake goes on", async () => {
    const answers: string[] = [];
    const { up, session } = await node(async (arrival) => {
      const socket = await arrival.accept();
      for (const frame of ["", "{", "[]", "null", '{"jsonrpc":"2.0"}', "\u0000", "[".repeat(40)]) socket.send(frame);
      socket.send(JSON.stringify({ jsonrpc: "2.0", id: 9, method: "trigger.run", params: { jws: "a.b.c" } }));
      const hello = new Promise<string>((resolve) => {
        socket.on("message", (data: Buffer) => {
          const text = data.toString("utf8");
          if (text.includes("session.hello")) resolve(text);
          else answers.push(text);
        });
      });
      socket.send(
        JSON.stringify({ jsonrpc: "2.0", method: "session.challenge", params: { nonce: NONCE, protocol: 1 } }),
      );
      const { id, params } = JSON.parse(await hello) as { id: number; params: { proof: string } };
      const { cnonce } = JSON.parse(Buffer.from(params.proof.split(".")[1] ?? "", "base64url").toString()) as {
        cnonce: string;
      };
      await prove(socket, { id, cnonce, nonce: NONCE }, key);
    });
    await up();
    expect(session.status().state).toBe("online");
    expect(answers).toHaveLength(1);
    expect(JSON.parse(answers[0] ?? "")).toMatchObject({ id: 9, error: { data: { code: "internal" } } });
  });

  test.each([
    [4001, "not-authentic", 30_000],
    [4002, "connection-closed", FAILED],
    [4003, "not-authentic", 30_000],
    [4004, "connection-closed", FAILED],
    [4008, "connection-closed", FAILED],
    [1000, "connection-closed", FAILED],
    [1011, "connection-closed", FAILED],
  ])("the close code %i counts for no more than it may", async (closeCode, code, delay) => {
    const { waiting } = await node(async ({ accept }) => (await accept()).close(closeCode));
    expect(await waiting()).toMatchObject({ code, delay });
  });

  test.each([0, 1, 77])(
    "an answer to nothing (id %i) opens nothing: calls are refused and the limit stays",
    async (id) => {
      const answers: unknown[] = [];
      const { waiting } = await node(async ({ accept }) => {
        const socket = await accept();
        socket.on("message", (data: Buffer) => {
          answers.push(JSON.parse(data.toString("utf8")));
          socket.send("x".repeat(70_000));
        });
        socket.send(JSON.stringify({ jsonrpc: "2.0", id, result: {} }));
        socket.send(JSON.stringify({ jsonrpc: "2.0", id: 9, method: "trigger.run", params: { jws: "a.b.c" } }));
      });
      expect(await waiting()).toMatchObject({ delay: FAILED });
      expect(answers).toMatchObject([{ id: 9, error: {} }]);
    },
  );

  test("a message above 64 KiB ends the attempt", async () => {
    const { waiting } = await node(async ({ accept }) => (await accept()).send("x".repeat(70_000)));
    expect((await waiting()).delay).toBe(FAILED);
  });

  test.each([
    ["binary", Buffer.from([0x82, 0x01, 0x00])],
    ["a half frame and a reset", Buffer.from([0x81, 0x7e, 0x10, 0x00, 0x61])],
    ["a reserved opcode", Buffer.from([0x83, 0x00])],
    ["a masked frame", Buffer.from([0x81, 0x81, 1, 2, 3, 4, 5])],
    ["text that is not UTF-8", Buffer.from([0x81, 0x01, 0xff])],
    ["a frame of 2^62 bytes", Buffer.from([0x81, 0x7f, 0x40, 0, 0, 0, 0, 0, 0, 0])],
  ])("%s ends the attempt", async (_what, bytes) => {
    const { waiting } = await node(async ({ accept, socket }) => {
      const webSocket = await accept();
      socket.write(bytes, () => {
        if (bytes.length === 5) socket.resetAndDestroy();
        else setTimeout(() => webSocket.terminate(), 50);
      });
    });
    expect((await waiting()).delay).toBe(FAILED);
  });
});

describe("a session", () => {
  test("opens, counts its attempts on disk, and knows the control plane's time", async () => {
    const { up, clock, session, identity, online, unhandled } = await node((arrival) => letIn(arrival, key));
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
    const { waiting, offline } = await node(async (arrival) => {
      const { socket } = await letIn(arrival, key);
      setTimeout(() => socket.close(closeCode, reason), 100);
    });
    expect(await waiting()).toMatchObject({ code, delay });
    expect(offline()).toBe(1);
  });

  test.each<[string, () => SigningKey, string | undefined, string | undefined, string, number]>([
    ["a genuine one", () => key, undefined, undefined, "deleted", 3_600_000],
    ["one by a stranger", () => stranger, undefined, undefined, "not-authentic", 30_000],
    ["another node's", () => key, "11111111-1111-4111-8111-111111111111", undefined, "not-authentic", 30_000],
    ["one from another attempt", () => key, undefined, NONCE, "not-authentic", 30_000],
  ])("with a deletion statement, %s, waits accordingly", async (_what, signer, aud, nonce, code, delay) => {
    const { waiting } = await node(async ({ accept }) => {
      const socket = await accept();
      const { cnonce } = await challenge(socket);
      const claims = { iss: ISS, aud: aud ?? UID, nonce: nonce ?? cnonce, iat: 1 };
      const jws = await signJws("holdfast-deleted+jwt", claims, signer());
      socket.send(JSON.stringify({ jsonrpc: "2.0", method: "session.deleted", params: { jws } }));
      socket.close(4003);
    });
    expect(await waiting()).toMatchObject({ code, delay });
  });

  test("that falls silent is cut after 37.5 s", async () => {
    const { up, clock, waiting, offline, session } = await node(async (arrival) => {
      const { socket } = await letIn(arrival, key);
      socket.pong = () => undefined;
    });
    await up();
    for (let i = 0; i < 8; i += 1) await clock.advance(5000);
    expect(await waiting()).toMatchObject({ code: "silent" });
    expect(session.status().lastOnlineAt).toBe(session.status().since);
    expect(offline()).toBe(1);
  });

  test("lives while a large message comes in slowly", async () => {
    const sockets: Socket[] = [];
    const { up, clock, session, waiting } = await node(async (arrival) => {
      const { socket } = await letIn(arrival, key);
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
    for (let i = 0; i < 15; i += 1) {
      await new Promise((resolve) => socket.write(Buffer.alloc(1000, 0x20), resolve));
      // Three pieces may be late before time has gone on too far.
      await new Promise((resolve) => setTimeout(resolve, 20));
      await clock.advance(10_000);
      expect(session.status().state).toBe("online");
    }
    for (let i = 0; i < 6; i += 1) await clock.advance(5000);
    expect(await waiting()).toMatchObject({ code: "silent" });
  });

  test("whose other end never reads is cut after 37.5 s", async () => {
    const sockets: Socket[] = [];
    const { up, clock, session } = await node(async (arrival) => {
      await letIn(arrival, key);
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

  test("answers what it does not know or cannot read, if it was asked", async () => {
    const answers: unknown[] = [];
    const sockets: WebSocket[] = [];
    const { up } = await node(async (arrival) => sockets.push((await letIn(arrival, key)).socket));
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

  test("takes larger messages, up to 1 MiB and no further", async () => {
    const { up, waiting } = await node(async (arrival) => {
      const { socket } = await letIn(arrival, key);
      setTimeout(() => {
        socket.send(
          JSON.stringify({
            jsonrpc: "2.0",
            id: 5,
            method: "trigger.run",
            params: { jws: `a.${"b".repeat(500_000)}.c` },
          }),
        );
        socket.once("message", () => socket.send("x".repeat(1_100_000)));
      }, 100);
    });
    await up();
    expect((await waiting()).delay).toBe(4000);
  });

  test("is closed without a trace", async () => {
    const { up, session, plane, clock } = await node((arrival) => letIn(arrival, key));
    const connection = await up();
    const call = connection.rpc.request("document.get", { name: "node", have: 0 });
    session.close();
    await expect(call).rejects.toMatchObject({ code: "shutdown" });
    await waitFor("the socket to close", () => plane.openSockets === 0);
    expect(session.status().state).toBe("stopped");
    expect(clock.pendingTimers).toBe(0);
    await expect(connection.drained()).rejects.toMatchObject({ code: "shutdown" });
  });

  test.each([
    [59_000, 1],
    [61_000, 2],
  ])("after a sleep of %i ms is there in session %i", async (slept, attempt) => {
    const { up, session, clock, online, offline } = await node((arrival) => letIn(arrival, key));
    await up();
    await clock.advance(1000);
    clock.setWall(clock.now() + slept);
    session.wake("network");
    expect(session.status().state).toBe("online");
    session.wake("resumed");
    await waitFor("the session", () => session.status().state === "online" && online.length === attempt);
    expect([session.status().attempt, offline()]).toEqual([attempt, attempt - 1]);
    expect(session.connection?.sessionNow()).toBe(attempt === 1 ? 1001 : 1000);
    session.wake("resumed");
    expect(session.status().state).toBe("online");
  });

  test("comes back after it was lost", async () => {
    const { up, session, clock, plane, online } = await node(async (arrival) => {
      const { socket } = await letIn(arrival, key);
      if (plane.arrivals === 1) setTimeout(() => socket.terminate(), 50);
    });
    await up();
    await waitFor("the loss", () => session.status().state === "waiting");
    await clock.advance(4000);
    await up();
    expect(online).toHaveLength(2);
    expect(session.status().attempt).toBe(2);
  });
});
