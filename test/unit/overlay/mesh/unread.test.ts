import { PassThrough, Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { memoryLimit, UnreadBytes } from "../../../../src/overlay/mesh/unread.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const MIB = 1024 * 1024;

/** A stream on which so much has arrived that nobody reads. */
function stalled(bytes: number, chunkBytes = bytes): Readable {
  const stream = new Readable({ highWaterMark: bytes, read: () => undefined }).on("error", () => undefined);
  for (let at = 0; at < bytes; at += chunkBytes) stream.push(Buffer.alloc(Math.min(chunkBytes, bytes - at)));
  return stream;
}

function bound(memoryBytes: number) {
  const clock = new FakeClock();
  const cut: string[] = [];
  const unread = new UnreadBytes({ clock, memoryBytes, onReset: (peer) => cut.push(peer) });
  return { clock, cut, unread };
}

describe("what arrived and is not read", () => {
  it("is bounded per peer: whoever holds most is reset, and only of that peer", async () => {
    const { clock, cut, unread } = bound(64 * MIB);
    const greedy = [2, 1, 1, 2, 1, 2].map((size) => stalled(size * MIB));
    const other = stalled(2 * MIB);
    for (const stream of greedy) unread.watch("greedy", stream);
    unread.watch("other", other);
    await clock.advance(10);
    expect(cut).toEqual(["greedy"]);
    expect(greedy.map(({ destroyed }) => destroyed)).toEqual([true, false, false, false, false, false]);
    expect(unread.held("greedy")).toBeLessThanOrEqual(8 * MIB);
    expect(other.destroyed).toBe(false);
  });

  it("is bounded for all together", async () => {
    const { clock, cut, unread } = bound(32 * MIB);
    const streams = ["a", "b", "c", "d", "e"].map((peer) => {
      const stream = stalled(2 * MIB);
      unread.watch(peer, stream);
      return stream;
    });
    await clock.advance(10);
    expect(cut).toHaveLength(2);
    expect(streams.filter(({ destroyed }) => destroyed)).toHaveLength(2);
  });

  it("counts what a chunk costs beside its bytes", async () => {
    const { clock, cut, unread } = bound(16 * MIB);
    unread.watch("a", stalled(16 * 1024, 1));
    unread.watch("a", stalled(16 * 1024));
    await clock.advance(10);
    expect(cut).toEqual(["a"]);
  });

  it("counts what waits to be sent by whatever it leads to", () => {
    const { unread } = bound(16 * MIB);
    const [from, to] = [stalled(10), new PassThrough({ highWaterMark: 1 })];
    to.cork();
    to.write(Buffer.alloc(1000));
    unread.watch("a", from);
    unread.leads(from, to);
    expect(unread.held("a")).toBe(10 + 512 + 1000);
  });

  it("does not look where all windows together could not exceed it, and never again once all flows", async () => {
    const { clock, unread } = bound(128 * MIB);
    const streams = Array.from({ length: 5 }, () => stalled(MIB));
    for (const stream of streams.slice(0, 4)) unread.watch("a", stream);
    expect(clock.pendingTimers).toBe(0);
    unread.watch("a", streams[4] ?? stalled(0));
    expect(clock.pendingTimers).toBe(1);
    for (const stream of streams) stream.resume();
    await new Promise((resolve) => setImmediate(resolve));
    await clock.advance(200);
    expect([unread.held(), clock.pendingTimers]).toEqual([0, 0]);
  });

  it("is forgotten with its stream", async () => {
    const { unread } = bound(64 * MIB);
    const stream = stalled(MIB);
    unread.watch("a", stream);
    expect(unread.held()).toBeGreaterThan(MIB);
    await new Promise((resolve) => stream.once("close", resolve).destroy());
    expect(unread.held()).toBe(0);
  });

  it("has the machine's memory for its measure, or less", () => {
    expect(memoryLimit()).toBeGreaterThan(16 * MIB);
    expect(Number.isFinite(memoryLimit())).toBe(true);
  });
});
