import { PassThrough, Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { memoryLimit, ReceiveBuffers } from "../../../../../src/overlay/mesh/transport/receive-buffer.ts";

const MIB = 1024 * 1024;

/** A stream with this much unread data. */
function stalled(bytes: number, chunkBytes = bytes): Readable {
  const stream = new Readable({ highWaterMark: bytes, read: () => undefined }).on("error", () => undefined);
  for (let at = 0; at < bytes; at += chunkBytes) stream.push(Buffer.alloc(Math.min(chunkBytes, bytes - at)));
  return stream;
}

function bound(memoryBytes: number) {
  const cut: string[] = [];
  const receiveBuffers = new ReceiveBuffers({ memoryBytes, onReset: (peer) => cut.push(peer) });
  return { cut, receiveBuffers };
}

describe("the receive buffer", () => {
  it("is limited for each peer: the stream that holds most is reset, and only of that peer", () => {
    const { cut, receiveBuffers } = bound(64 * MIB);
    const greedy = [2, 1, 1, 2, 1, 2].map((size) => stalled(size * MIB));
    const other = stalled(2 * MIB);
    for (const stream of greedy) receiveBuffers.watch("greedy", stream);
    receiveBuffers.watch("other", other);
    expect(cut).toEqual(["greedy"]);
    expect(greedy.map(({ destroyed }) => destroyed)).toEqual([true, false, false, false, false, false]);
    expect(receiveBuffers.held("greedy")).toBeLessThanOrEqual(8 * MIB);
    expect(other.destroyed).toBe(false);
  });

  it("is bounded in total", () => {
    const { cut, receiveBuffers } = bound(32 * MIB);
    const streams = ["a", "b", "c", "d", "e"].map((peer) => {
      const stream = stalled(2 * MIB);
      receiveBuffers.watch(peer, stream);
      return stream;
    });
    expect(cut).toHaveLength(2);
    expect(streams.filter(({ destroyed }) => destroyed)).toHaveLength(2);
  });

  it("counts the overhead of a chunk beside its bytes", () => {
    const { cut, receiveBuffers } = bound(16 * MIB);
    receiveBuffers.watch("a", stalled(16 * 1024, 1));
    receiveBuffers.watch("a", stalled(16 * 1024));
    expect(cut).toEqual(["a"]);
  });

  it("counts data that waits to be sent to any target", () => {
    const { receiveBuffers } = bound(16 * MIB);
    const [from, to] = [stalled(10), new PassThrough({ highWaterMark: 1 })];
    to.cork();
    to.write(Buffer.alloc(1000));
    receiveBuffers.watch("a", from);
    receiveBuffers.forwardsTo(from, to);
    expect(receiveBuffers.held("a")).toBe(10 + 512 + 1000);
  });

  it("counts data as it arrives, so that the limit holds at any moment", () => {
    const { cut, receiveBuffers } = bound(16 * MIB);
    const streams = ["a", "a", "a"].map((peer) => {
      const stream = stalled(0);
      receiveBuffers.watch(peer, stream);
      return stream;
    });
    let most = 0;
    for (let at = 0; at < 100; at += 1) {
      for (const stream of streams) if (!stream.destroyed) stream.push(Buffer.alloc(16 * 1024));
      most = Math.max(most, receiveBuffers.held());
    }
    expect(cut).toEqual(["a", "a"]);
    expect(most).toBeGreaterThan(1.9 * MIB);
    expect(most).toBeLessThanOrEqual(2 * MIB);
  });

  it("does not count data once it is read, and again as soon as reading stops", async () => {
    const { cut, receiveBuffers } = bound(16 * MIB);
    const streams = Array.from({ length: 4 }, () => stalled(MIB / 2 - 4096));
    for (const stream of streams) receiveBuffers.watch("a", stream.resume());
    await new Promise((resolve) => setImmediate(resolve));
    expect(receiveBuffers.held()).toBe(0);
    for (const stream of streams) stream.push(Buffer.alloc(MIB));
    await new Promise((resolve) => setImmediate(resolve));
    for (const stream of streams) stream.pause().push(Buffer.alloc(MIB / 2 - 4096));
    expect([cut, receiveBuffers.held("a")]).toEqual([[], 4 * (MIB / 2 - 4096 + 512)]);
    streams[0]?.push(Buffer.alloc(MIB));
    expect([cut, streams[0]?.destroyed]).toEqual([["a"], true]);
  });

  it("subtracts what was sent meanwhile before anything is reset", async () => {
    const { cut, receiveBuffers } = bound(16 * MIB);
    const [from, to] = [stalled(10), new PassThrough({ highWaterMark: 1 })];
    to.cork();
    to.write(Buffer.alloc(1.5 * MIB));
    receiveBuffers.forwardsTo(from, to);
    receiveBuffers.watch("a", from);
    to.resume().uncork();
    await new Promise((resolve) => setImmediate(resolve));
    from.push(Buffer.alloc(MIB));
    expect([cut, from.destroyed]).toEqual([[], false]);
  });

  it("counts data once, in any number of calls", () => {
    const { receiveBuffers } = bound(64 * MIB);
    const stream = stalled(MIB);
    receiveBuffers.watch("a", stream);
    receiveBuffers.watch("a", stream);
    expect(receiveBuffers.held()).toBe(MIB + 512);
  });

  it("forgets a closed stream", async () => {
    const { receiveBuffers } = bound(64 * MIB);
    const stream = stalled(MIB);
    receiveBuffers.watch("a", stream);
    expect(receiveBuffers.held()).toBeGreaterThan(MIB);
    await new Promise((resolve) => stream.once("close", resolve).destroy());
    expect(receiveBuffers.held()).toBe(0);
  });

  it("has at most the size of the machine's memory share", () => {
    expect(memoryLimit()).toBeGreaterThan(16 * MIB);
    expect(Number.isFinite(memoryLimit())).toBe(true);
  });
});
