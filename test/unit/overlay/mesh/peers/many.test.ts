import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import type { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { STREAM_WINDOW_BYTES } from "../../../../../src/overlay/mesh/transport/receive-buffer.ts";
import { aClient, echo, type Client } from "../../../../support/overlay/overlay-rig.ts";
import { remoteService } from "../../../../support/overlay/peer-rig.ts";
import { TESTS_ALL } from "../../../../support/sample.ts";
import { untilStill } from "../../../../support/until-still.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const [CLOSES, RESETS] = TESTS_ALL ? [10_000, 3000] : [200, 100];

const closed = (client: Client): Promise<string> => waitFor("the client hears of its end", () => client.fate());

describe("one session with many flows", () => {
  it(`survives ${CLOSES} ordinary closes`, { timeout: 600_000 }, async () => {
    const { rig, source, port } = await remoteService(echo);
    let fates = 0;
    for (let done = 0; done < CLOSES; done += 100) {
      await Promise.all(
        Array.from({ length: 100 }, async () => {
          const client = aClient(port);
          client.socket.end("x");
          await Promise.race([once(client.socket, "end"), once(client.socket, "error")]);
          if (client.text() === "x" && client.fate() === "end") fates += 1;
          client.socket.destroy();
        }),
      );
    }
    expect(fates).toBe(CLOSES);
    expect(rig.splices).toHaveLength(1);
    expect(source.counters()).toMatchObject({ flows: CLOSES, refusals: {}, errors: {} });
    expect(source.flows.states()).toMatchObject([{ flows: CLOSES }]);
  });

  it(`survives ${RESETS} resets from both sides`, { timeout: 600_000 }, async () => {
    const { rig, source, port } = await remoteService((socket) => {
      socket
        .on("error", () => undefined)
        .on("data", (data: Buffer) => {
          if (data.toString() === "reset me") socket.resetAndDestroy();
          else socket.write(data);
        });
    });
    for (let done = 0; done < RESETS; done += 100) {
      await Promise.all(
        Array.from({ length: 100 }, async (_, i) => {
          const client = aClient(port);
          client.socket.write(i % 2 === 0 ? "reset me" : "hello");
          if (i % 2 === 0) expect(await closed(client)).toBe("ECONNRESET");
          else {
            await once(client.socket, "data");
            client.socket.resetAndDestroy();
          }
        }),
      );
    }
    await waitFor("all are over", () => source.counters().activeFlows === 0);
    expect(rig.splices).toHaveLength(1);
    expect(source.counters()).toMatchObject({ flows: RESETS, refusals: {}, errors: { reset: RESETS } });
  });

  it("serves the others while one of two hundred is not read", { timeout: 600_000 }, async () => {
    const size = 100_000;
    const { rig, source, port } = await remoteService((socket) => {
      socket
        .on("error", () => undefined)
        .on("data", (data: Buffer) => {
          // The first byte selects the amount: all of it, or more than is ever read.
          socket.write(Buffer.alloc(data[0] === 1 ? 64 * 1024 * 1024 : size, "y"));
        });
    });
    const stalled = aClient(port);
    stalled.socket.pause();
    stalled.socket.write(Buffer.of(1));
    await waitFor("the stalled one fills", () => source.counters().bytesOut > 2_000_000);
    const others = Array.from({ length: 199 }, () => aClient(port));
    for (const client of others) client.socket.write(Buffer.of(2));
    await waitFor("the others have all of theirs", () =>
      others.every((client) => client.received.reduce((sum, { length }) => sum + length, 0) === size),
    );
    expect(rig.splices).toHaveLength(1);
    expect(stalled.fate()).toBeUndefined();
    expect(source.counters()).toMatchObject({ activeFlows: 200, errors: {} });
    // The data waiting for the one that does not read is bounded, by its window and its socket.
    expect(source.counters().bytesOut).toBeLessThan(199 * size + 16 * 1024 * 1024);
  });

  it("carries a large upload completely while its reader is slow", { timeout: 600_000 }, async () => {
    const size = (TESTS_ALL ? 16 : 4) * STREAM_WINDOW_BYTES;
    const hash = createHash("sha256");
    let received = 0;
    const { source, destination, port } = await remoteService((socket: Socket) => {
      socket.on("data", (chunk: Buffer) => {
        hash.update(chunk);
        received += chunk.length;
        socket.pause();
        setImmediate(() => socket.resume());
      });
      socket.on("end", () => socket.end("done"));
    });
    const client = aClient(port);
    const sent = createHash("sha256");
    for (let at = 0; at < size; at += 262_144) {
      const piece = randomBytes(262_144);
      sent.update(piece);
      if (!client.socket.write(piece)) await once(client.socket, "drain");
    }
    client.socket.end();
    expect(await closed(client)).toBe("end");
    expect(client.text()).toBe("done");
    expect(received).toBe(size);
    expect(hash.digest("hex")).toBe(sent.digest("hex"));
    expect(await source.nextFlow()).toMatchObject({ sourceBytes: size, destBytes: 4 });
    expect(await destination.nextFlow()).toMatchObject({ sourceBytes: size, destBytes: 4 });
  });

  it("buffers a bounded amount for a client that stops reading, and drops nothing when it continues", async () => {
    const size = 24 * 1024 * 1024;
    const data = randomBytes(size);
    const { port, destination } = await remoteService((socket) => socket.end(data));
    const client = aClient(port);
    client.socket.pause();
    const given = await untilStill("the flow stands still", () => destination.flows.states()[0]?.bytesOut ?? 0);
    expect(given).toBeLessThan(size / 2);
    client.socket.resume();
    expect(await closed(client)).toBe("end");
    expect(Buffer.concat(client.received).equals(data)).toBe(true);
  });
});
