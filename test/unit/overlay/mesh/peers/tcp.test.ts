import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { STREAM_WINDOW_BYTES } from "../../../../../src/overlay/mesh/transport/receive-buffer.ts";
import { aClient, echo } from "../../../../support/overlay/overlay-rig.ts";
import { remoteService } from "../../../../support/overlay/peer-rig.ts";
import { waitFor } from "../../../../support/wait-for.ts";

describe("a tcp flow to another node", () => {
  it("passes bytes in both directions and is recorded at both ends", async () => {
    const backendSees: (number | undefined)[] = [];
    const { source, destination, port, target } = await remoteService((socket) => {
      backendSees.push(socket.remotePort);
      echo(socket);
    });
    const client = aClient(port);
    client.socket.end("hello");
    await once(client.socket, "connect");
    const clientPort = client.socket.localPort;
    await waitFor("the echo ends", () => client.fate() === "end");
    expect(client.text()).toBe("hello");
    const moved = { service: "web", protocol: "tcp", sourceBytes: 5, destBytes: 5 };
    const common = { ...moved, connector: `c${port}`, sourceIp: "127.0.0.1", sourcePort: clientPort };
    const near = await source.nextFlow();
    expect(near).toMatchObject({ ...common, peer: destination.uid, destIp: "127.0.0.1", destPort: port });
    expect(near.reason).toBeUndefined();
    expect(await destination.nextFlow()).toMatchObject({
      ...common,
      id: near.id,
      listener: "",
      peer: source.uid,
      destIp: "127.0.0.1",
      destPort: target,
      origin: { ip: "127.0.0.1", port: backendSees[0] },
    });
    expect(source.counters()).toMatchObject({
      flows: 1,
      activeFlows: 0,
      bytesIn: 5,
      bytesOut: 5,
      refusals: {},
      errors: {},
    });
  });

  it.each(["the client", "the backend"])("that %s cuts has the accepted bytes at both ends", async (who) => {
    const sockets: Socket[] = [];
    const flood = Buffer.alloc(32 * 1024 * 1024);
    const { source, destination, port } = await remoteService((socket) => {
      sockets.push(socket.pause());
      socket.write(flood);
    });
    const client = connect(port, "127.0.0.1").on("error", () => undefined);
    client.pause().write(flood);
    const [backend] = await waitFor("the backend is reached", () => (sockets.length > 0 ? sockets : undefined));
    let before = -1;
    // All buffers between the two are full, since neither reads.
    await waitFor("nothing moves any more", () => {
      const { bytesIn, bytesOut } = source.counters();
      const isStill = bytesIn > 0 && bytesOut > 0 && bytesIn + bytesOut === before;
      before = bytesIn + bytesOut;
      return isStill;
    });
    if (who === "the client") client.resetAndDestroy();
    else backend?.resetAndDestroy();
    const near = await source.nextFlow();
    const far = await destination.nextFlow();
    expect(near.reason).toBe("reset");
    expect(near.sourceBytes).toBeGreaterThan(0);
    expect([far.sourceBytes, far.destBytes]).toEqual([near.sourceBytes, near.destBytes]);
    client.destroy();
  });

  it("keeps a half-close of the client: the answer follows the end of the question", async () => {
    const { port } = await remoteService((socket) => {
      let question = "";
      socket.on("data", (chunk: Buffer) => (question += chunk.toString()));
      socket.on("end", () => setImmediate(() => socket.end(`you said ${question}`)));
    });
    const client = aClient(port);
    client.socket.end("much");
    await waitFor("the answer", () => client.fate() === "end");
    expect(client.text()).toBe("you said much");
  });

  it("keeps a half-close of the server: the client continues to send", async () => {
    let received = "";
    const { port } = await remoteService((socket) => {
      socket.end("bye");
      socket.on("data", (chunk: Buffer) => (received += chunk.toString()));
    });
    const client = aClient(port);
    await waitFor("the server's end", () => client.fate() === "end");
    client.socket.write("still ");
    client.socket.end("here");
    await waitFor("it arrives", () => received === "still here");
  });

  it("passes a reset on as a reset, in both directions", async () => {
    const sides: Socket[] = [];
    const { source, destination, port } = await remoteService(
      (socket) => void sides.push(socket.on("error", () => undefined).resume()),
    );
    const first = aClient(port);
    first.socket.write("x");
    (await waitFor("a connection", () => sides[0])).resetAndDestroy();
    await waitFor("the client hears of it", () => first.fate());
    expect(first.fate()).toBe("ECONNRESET");
    expect(await source.nextFlow()).toMatchObject({ reason: "reset" });
    expect(await destination.nextFlow()).toMatchObject({ reason: "reset" });

    const second = aClient(port);
    second.socket.write("x");
    const side = await waitFor("another connection", () => sides[1]);
    let fate: string | undefined;
    side.on("error", (error: NodeJS.ErrnoException) => (fate ??= error.code)).on("end", () => (fate ??= "end"));
    second.socket.resetAndDestroy();
    await waitFor("the server hears of it", () => fate);
    expect(fate).toBe("ECONNRESET");
    expect(await source.nextFlow()).toMatchObject({ reason: "reset" });
    expect(await destination.nextFlow()).toMatchObject({ reason: "reset" });
    expect(source.counters().errors).toEqual({ reset: 2 });
  });

  it("carries much data unchanged, in both directions at once, through a reader that pauses", async () => {
    const { port } = await remoteService(echo);
    const size = 2 * STREAM_WINDOW_BYTES;
    const data = randomBytes(size);
    const client = aClient(port);
    const hash = createHash("sha256");
    client.socket.removeAllListeners("data");
    let received = 0;
    client.socket.on("data", (chunk: Buffer) => {
      hash.update(chunk);
      received += chunk.length;
      if (received % 7 !== 0) return;
      client.socket.pause();
      setTimeout(() => client.socket.resume(), 1);
    });
    const sizes = [1, 65_536, 8192, 131_072, 777, 300_000, 4096];
    for (let at = 0, i = 0; at < size; i += 1) {
      const piece = data.subarray(at, at + (sizes[i % sizes.length] ?? 1));
      at += piece.length;
      if (!client.socket.write(piece)) await once(client.socket, "drain");
    }
    client.socket.end();
    await waitFor("all of it is back", () => client.fate() === "end");
    expect(received).toBe(size);
    expect(hash.digest("hex")).toBe(createHash("sha256").update(data).digest("hex"));
  });

  it.each(["in", "out"] as const)("holds the rate of its listener %s", async (direction) => {
    const size = 300_000;
    const { source, port } = await remoteService(
      (socket) =>
        direction === "out" ? socket.end(Buffer.alloc(size)) : socket.resume().on("end", () => socket.end()),
      { bitsPerSecond: 2_400_000 },
    );
    const startedAt = performance.now();
    const client = aClient(port);
    client.socket.end(direction === "in" ? Buffer.alloc(size) : "");
    await waitFor("it is through", () => client.fate() === "end");
    // At 300 kB a second, after a burst of at most 64 KiB.
    expect(performance.now() - startedAt).toBeGreaterThan(600);
    expect(source.counters()).toMatchObject({ [direction === "in" ? "bytesIn" : "bytesOut"]: size });
  });

  it("is ended at both ends when idle for too long, and counts against the limit", async () => {
    const { source, destination, port } = await remoteService(echo, { idleTimeoutMs: 1000, maxFlows: 1 });
    const client = aClient(port);
    client.socket.write("hello");
    await waitFor("the echo", () => client.text() === "hello");
    const other = aClient(port);
    await waitFor("it is refused", () => other.fate() === "ECONNRESET");
    expect(await source.nextFlow()).toMatchObject({ reason: "too-many-flows", peer: destination.uid });
    await waitFor("it is ended", () => client.fate() === "ECONNRESET");
    expect(await source.nextFlow()).toMatchObject({ reason: "idle" });
    expect(await destination.nextFlow()).toMatchObject({ reason: "idle" });
  });
});
