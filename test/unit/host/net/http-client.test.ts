import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostDialler } from "../../../../src/host/net/dial.ts";
import { hostHttpClient, parseRetryAfter, type HttpRequest } from "../../../../src/host/net/http-client.ts";

const NOW = Date.UTC(2026, 0, 1);

/** A server with one reaction to each connection after its request. */
async function serve(script: (socket: Socket, requested: string) => void): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined).once("data", (data) => script(socket, data.toString()));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function send(url: string, changes: Partial<HttpRequest> = {}, signal = new AbortController().signal) {
  const client = hostHttpClient(hostDialler(systemClock(), { noProxy: [] }), () => NOW);
  return client.send({ url, method: "GET", pins: [], maxBytes: 1000, timeoutMs: 60_000, ...changes }, signal);
}

test("plain HTTP never leaves this machine, for any host name", async () => {
  const url = `http://${"a".repeat(64)}.localhost:8480/`;
  const failed = send(url, { knownAddresses: ["192.0.2.1"], timeoutMs: 500 });
  await expect(failed).rejects.toMatchObject({ code: "insecure" });
});

describe("an answer", () => {
  test.each([
    ["hangs", () => undefined],
    [
      "trickles",
      (socket: Socket) => {
        socket.write("HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n");
        const timer = setInterval(() => socket.write("x"), 10);
        socket.once("close", () => clearInterval(timer));
      },
    ],
  ])("that %s is given up", async (_what, script) => {
    const failed = send(await serve(script), { stallMs: 200 });
    await expect(failed).rejects.toMatchObject({ code: "http-stalled" });
  });

  test("that is late is reported with the step and the seconds", async () => {
    const url = await serve(() => undefined);
    const message = `GET ${url}/: connected, and no complete answer came within 0.2 s`;
    await expect(send(url, { timeoutMs: 200 })).rejects.toMatchObject({ code: "http-failed", message });
  });

  test("that ends in the handshake of TLS is reported with the seconds", async () => {
    const url = (await serve(() => undefined)).replace("http:", "https:");
    await expect(send(url, { timeoutMs: 200 })).rejects.toThrow("no connection within 0.2 s");
  });

  test("comes with its status, type and body, and the request is sent as given", async () => {
    let seen = "";
    const url = await serve((socket, requested) => {
      seen = requested;
      socket.end("HTTP/1.1 201 Created\r\ncontent-type: text/plain\r\nretry-after: 7\r\ncontent-length: 3\r\n\r\nabc");
    });
    const answer = await send(`${url}/path?q=1`, { method: "POST", body: "{}", headers: { "x-a": "b" } });
    expect(answer).toEqual({ status: 201, contentType: "text/plain", retryAfterMs: 7000, body: "abc" });
    expect(seen).toMatch(/^POST \/path\?q=1 HTTP\/1\.1\r\n/);
    expect(seen.toLowerCase()).toContain(`host: ${url.slice("http://".length)}`);
    expect(seen).toContain("x-a: b");
  });

  test("is returned unchanged: a redirect is not followed", async () => {
    const url = await serve((socket) => socket.end("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n"));
    expect((await send(url)).status).toBe(302);
  });

  test("as large as allowed is accepted; one byte more is not", async () => {
    const url = await serve((socket) => socket.end(`HTTP/1.1 200 OK\r\n\r\n${"x".repeat(1000)}`));
    expect((await send(url)).body).toHaveLength(1000);
    await expect(send(url, { maxBytes: 999 })).rejects.toMatchObject({ code: "too-large" });
  });

  test("without an end is cut at the size limit", async () => {
    const url = await serve((socket) => {
      socket.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
      const more = (): void => {
        while (!socket.destroyed && socket.write(`400\r\n${"x".repeat(1024)}\r\n`));
      };
      socket.on("drain", more);
      more();
    });
    await expect(send(url, { maxBytes: 100_000 })).rejects.toMatchObject({ code: "too-large" });
  });

  test.each([
    ["cut off", (socket: Socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")],
    [
      "reset in the middle",
      (socket: Socket) =>
        socket.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", () => socket.resetAndDestroy()),
    ],
    ["reset before it began", (socket: Socket) => socket.resetAndDestroy()],
    [
      "a switch of protocols",
      (socket: Socket) => socket.write("HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"),
    ],
    ["empty", (socket: Socket) => socket.end()],
    ["garbage", (socket: Socket) => socket.end("\0\0\0\r\n\r\n")],
    [
      "with a broken chunk",
      (socket: Socket) => socket.end("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
    ],
    ["with endless headers", (socket: Socket) => socket.end(`HTTP/1.1 200 OK\r\n${"a: b\r\n".repeat(20_000)}\r\n`)],
  ])("that is %s fails", async (_what, script) => {
    await expect(send(await serve(script))).rejects.toMatchObject({ name: "SessionError", code: "http-failed" });
  });

  test("that never comes ends with the deadline, or when aborted", async () => {
    const url = await serve(() => undefined);
    await expect(send(url, { timeoutMs: 100 })).rejects.toMatchObject({ code: "http-failed" });
    const controller = new AbortController();
    const answer = send(url, {}, controller.signal);
    setTimeout(() => controller.abort(), 50);
    await expect(answer).rejects.toMatchObject({ code: "http-failed" });
  });
});

test("plain HTTP leads only to loopback", async () => {
  await expect(send("http://192.0.2.1/")).rejects.toMatchObject({ code: "insecure" });
});

test.each([
  [undefined, undefined],
  ["0", 0],
  ["120", 120_000],
  ["Thu, 01 Jan 2026 00:01:00 GMT", 60_000],
  ["Thursday, 01-Jan-26 00:01:00 GMT", 60_000],
  ["Thu, 01 Jan 2015 00:01:00 GMT", 0],
  ["", undefined],
  ["soon", undefined],
  ["soon 12", undefined],
  ["-5", undefined],
  ["1.5", undefined],
  ["Sunday", undefined],
])("Retry-After %j is %j ms", (value, ms) => {
  expect(parseRetryAfter(value, NOW)).toBe(ms);
});
