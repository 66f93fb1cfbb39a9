import { describe, expect, test } from "vitest";
import { challenge, NONCE, prove } from "../../../support/control-plane/hostile-control-plane.ts";
import { type SigningKey } from "../../../support/control-plane/signing.ts";
import { waitFor } from "../../../support/wait-for.ts";
import { FAILED, key, node, stranger } from "./rig.ts";

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

  test("ws:// towards a name below localhost of another machine", async () => {
    const { waiting, identity } = await node(() => undefined, `ws://${"a".repeat(64)}.localhost/agent/v1/session`, [
      "192.0.2.1",
    ]);
    expect(await waiting()).toMatchObject({ code: "insecure", delay: FAILED });
    expect(await identity.addresses.load()).toMatchObject({ value: { addresses: ["192.0.2.1"] } });
  });

  test("silence ends the attempt after ten seconds", async () => {
    const { plane, clock, waiting } = await node(({ socket }) => socket.resume());
    await waitFor("the connection", () => plane.openSockets === 1);
    await clock.advance(10_000);
    expect(await waiting()).toMatchObject({ code: "handshake-timeout", delay: FAILED });
  });
});

describe("before the verification of the control plane", () => {
  test("silence after the upgrade, or after the hello, ends the attempt after ten seconds", async () => {
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

  test("answers a challenge once, however often it comes", async () => {
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
  ])("does not accept a proof with %s", async (_what, wrong, code) => {
    const { waiting, online, forgeries } = await node(async ({ accept }) => {
      const socket = await accept();
      const [signer, changes] = wrong();
      await prove(socket, await challenge(socket), signer, changes);
    });
    expect(await waiting()).toMatchObject({ code, delay: code === "not-authentic" ? 30_000 : FAILED });
    expect(forgeries).toEqual([`a session's proof: ${code}`]);
    expect(online).toEqual([]);
  });

  test("ignores garbage and calls, and the handshake continues", async () => {
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
  ])("the close code %i has no more effect than allowed", async (closeCode, code, delay) => {
    const { waiting } = await node(async ({ accept }) => (await accept()).close(closeCode));
    expect(await waiting()).toMatchObject({ code, delay });
  });

  test.each([0, 1, 77])(
    "an answer without a request (id %i) opens nothing: calls are refused and the limit stays",
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

  test("cuts an endless stream early, and logs it once", async () => {
    let sent = 0;
    const { waiting, mistakes } = await node(async ({ accept }) => {
      const socket = await accept();
      for (; sent < 200_000 && socket.readyState === socket.OPEN; sent += 1) socket.send('{"a');
    });
    expect((await waiting()).code).toBe("flooded");
    expect(mistakes).toHaveLength(1);
  });

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
