import { once } from "node:events";
import { createServer } from "node:http";
import { connect as connectHttp2, createServer as createHttp2Server, type ServerHttp2Stream } from "node:http2";
import type { Server } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { remoteService } from "../../../../support/overlay/peer-rig.ts";
import { waitFor } from "../../../../support/wait-for.ts";

/** A connector to a service on another node whose server does not listen itself. */
async function served(server: Server) {
  const service = await remoteService((socket) => void server.emit("connection", socket));
  onTestFinished(() => void server.close());
  return service;
}

describe("protocols over a connector", () => {
  it("WebSocket: text and bytes in both directions, pings, and the close code", async () => {
    const server = createServer();
    const sockets = new WebSocketServer({ server });
    const closes: (readonly [number, string])[] = [];
    sockets.on("connection", (socket) => {
      socket.on("message", (data, binary) => socket.send(data, { binary }));
      socket.on("close", (code, reason) => void closes.push([code, reason.toString()]));
    });
    const { port, source } = await served(server);
    const client = new WebSocket(`ws://127.0.0.1:${port}/chat`);
    await once(client, "open");
    const large = Buffer.alloc(2 * 1024 * 1024, "x");
    for (const sent of ["hello", large]) {
      const answer = once(client, "message");
      client.send(sent);
      const [data, isBinary] = (await answer) as [Buffer, boolean];
      expect([data.equals(Buffer.from(sent)), isBinary]).toEqual([true, typeof sent !== "string"]);
    }
    const pong = once(client, "pong");
    client.ping("are you there");
    expect(String((await pong)[0])).toBe("are you there");
    // A server that sends first, to a silent client.
    const news = once(client, "message");
    for (const socket of sockets.clients) socket.send("news");
    expect(String((await news)[0])).toBe("news");
    client.close(4001, "enough");
    await waitFor("the server hears of the end", () => closes.length === 1);
    expect(closes).toEqual([[4001, "enough"]]);
    await waitFor("the flow is over", () => source.counters().activeFlows === 0);
    expect(source.counters()).toMatchObject({ flows: 1, refusals: {}, errors: {} });
  });

  it("gRPC: many concurrent streams in one connection, each with its trailers", async () => {
    const server = createHttp2Server();
    server.on("stream", (stream: ServerHttp2Stream, headers) => {
      stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
      stream.on("wantTrailers", () =>
        stream.sendTrailers({ "grpc-status": headers[":path"] === "/fail" ? "13" : "0" }),
      );
      stream.pipe(stream);
    });
    const { port, source } = await served(server);
    const session = connectHttp2(`http://127.0.0.1:${port}`);
    onTestFinished(() => session.destroy());
    const call = async (path: string): Promise<readonly [string, unknown]> => {
      const stream = session.request({
        ":method": "POST",
        ":path": path,
        te: "trailers",
        "content-type": "application/grpc",
      });
      let output = "";
      stream.setEncoding("utf8").on("data", (text: string) => (output += text));
      const trailers = once(stream, "trailers");
      for (const part of ["one ", "two ", "three"]) {
        const before = output.length;
        stream.write(part);
        // Each answer precedes the next request.
        await waitFor("its echo", () => output.length === before + part.length);
      }
      stream.end();
      const [{ "grpc-status": status }] = (await trailers) as [Record<string, unknown>];
      return [output, status];
    };
    const calls = Array.from({ length: 20 }, (_, index) => call(index === 7 ? "/fail" : `/call/${index}`));
    const answers = await Promise.all(calls);
    expect(answers.map(([output]) => output)).toEqual(answers.map(() => "one two three"));
    expect(answers.map(([, status]) => status)).toEqual(answers.map((_, index) => (index === 7 ? "13" : "0")));
    session.close();
    await waitFor("the flow is over", () => source.counters().activeFlows === 0);
    expect(source.counters()).toMatchObject({ flows: 1, refusals: {}, errors: {} });
  });
});
