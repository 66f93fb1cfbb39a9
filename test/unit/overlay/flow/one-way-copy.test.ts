import { once } from "node:events";
import { PassThrough, Writable } from "node:stream";
import { describe, expect, it } from "vitest";
import { IdleCheck } from "../../../../src/overlay/flow/idle-check.ts";
import { OneWayCopy, type OneWayCopyOptions } from "../../../../src/overlay/flow/one-way-copy.ts";
import { TurnWriter } from "../../../../src/overlay/flow/turn-writer.ts";
import { RateLimiter } from "../../../../src/overlay/limits/rate-limiter.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { waitFor } from "../../../support/wait-for.ts";

/** Keeps its writes until it is told to accept them. */
class Slow extends Writable {
  readonly writes: number[] = [];
  #accept: (() => void) | undefined;

  override _write(chunk: Uint8Array, _encoding: string, callback: () => void): void {
    this.#take([chunk], callback);
  }

  override _writev(chunks: readonly { readonly chunk: Uint8Array }[], callback: () => void): void {
    this.#take(
      chunks.map(({ chunk }) => chunk),
      callback,
    );
  }

  accept(): void {
    const accept = this.#accept;
    this.#accept = undefined;
    accept?.();
  }

  #take(chunks: readonly Uint8Array[], callback: () => void): void {
    this.writes.push(chunks.reduce((sum, { length }) => sum + length, 0));
    this.#accept = callback;
  }
}

function copying(options: Partial<OneWayCopyOptions> = {}, highWaterMark = 1000) {
  const from = new PassThrough({ highWaterMark: 1 });
  const to = new Slow({ highWaterMark });
  const copy = new OneWayCopy({ limiters: [], ...options });
  copy.start(from, to);
  return { from, to, copy };
}

describe("a one-way copy", () => {
  it("reads no more while the other side is full, and goes on when it drains", async () => {
    const { from, to, copy } = copying();
    from.write(Buffer.alloc(1000));
    await waitFor("it is read", () => copy.bytes === 1000);
    expect(from.isPaused()).toBe(true);
    to.accept();
    await waitFor("it goes on", () => !from.isPaused());
  });

  it("reads on up to the given number of queued bytes", async () => {
    const { from, copy } = copying({ fullBytes: 3000 });
    for (const expected of [1000, 2000]) {
      from.write(Buffer.alloc(1000));
      await waitFor("it is read", () => copy.bytes === expected);
      expect(from.isPaused()).toBe(false);
    }
    from.write(Buffer.alloc(1000));
    await waitFor("it is full", () => from.isPaused());
    expect(copy.queuedBytes).toBe(3000);
  });

  it("waits for each of its rates, and is not resumed by one of two", async () => {
    const clock = new FakeClock();
    const [fast, slow] = [new RateLimiter(clock, 8_000_000), new RateLimiter(clock, 800_000)];
    const { from, copy } = copying({ limiters: [fast, slow] }, 10_000_000);
    from.write(Buffer.alloc(1_000_000));
    await waitFor("it is read", () => copy.bytes === 1_000_000);
    expect([from.isPaused(), copy.isRateLimited]).toEqual([true, true]);
    fast.setRate(undefined);
    expect([from.isPaused(), copy.isRateLimited]).toEqual([true, true]);
    slow.setRate(undefined);
    expect([from.isPaused(), copy.isRateLimited]).toEqual([false, false]);
  });

  it("passes the end on, but not of a source that was reset", async () => {
    for (const isReset of [false, true]) {
      const { from, to } = copying({ passesEnd: () => !isReset });
      from.end();
      await waitFor("its source has ended", () => from.readableEnded);
      expect(to.writableEnded).toBe(!isReset);
    }
  });

  it("passes nothing on after it was closed", () => {
    const { to, copy } = copying();
    copy.close();
    expect(copy.pass(Buffer.from("late"))).toBe(false);
    expect(to.writes).toEqual([]);
  });
});

describe("a turn writer", () => {
  it("sends a short first chunk at once and combines the rest of the turn", async () => {
    const to = new Slow({ highWaterMark: 1_000_000 });
    const writer = new TurnWriter(to);
    writer.write(Buffer.alloc(10));
    expect(to.writes).toEqual([10]);
    to.accept();
    for (let i = 0; i < 5; i += 1) writer.write(Buffer.alloc(20));
    expect(to.writes).toEqual([10]);
    await waitFor("the turn is over", () => to.writes.length > 1);
    expect(to.writes).toEqual([10, 100]);
  });

  it("counts what was accepted, also of a stream that was destroyed with the rest in its queue", async () => {
    const to = new Slow({ highWaterMark: 1_000_000 }).on("error", () => undefined);
    const writer = new TurnWriter(to);
    writer.write(Buffer.alloc(10));
    to.accept();
    await waitFor("it is counted", () => writer.taken === 10);
    writer.write(Buffer.alloc(5000));
    expect(writer.taken).toBe(10);
    to.destroy();
    // Only then does the stream empty its queue.
    await once(to, "close");
    expect(writer.taken).toBe(10);
  });
});

describe("an idle check", () => {
  const open = { isInUse: false, isHalfClosed: false };

  it("ends what moved nothing for the timeout, and a half-closed flow after a minute", () => {
    const check = new IdleCheck();
    expect(check.isOver(0, open, 1000, 600_000)).toBe(false);
    expect(check.isOver(0, open, 600_999, 600_000)).toBe(false);
    expect(check.isOver(0, open, 601_000, 600_000)).toBe(true);
    expect(check.isOver(7, open, 601_000, 600_000)).toBe(false);
    expect(check.isOver(7, { ...open, isHalfClosed: true }, 661_000, 600_000)).toBe(true);
  });

  it("keeps what is in use", () => {
    const check = new IdleCheck();
    check.isOver(0, open, 0, 1000);
    expect(check.isOver(0, { ...open, isInUse: true }, 5000, 1000)).toBe(false);
    expect(check.isOver(0, open, 5999, 1000)).toBe(false);
    expect(check.isOver(0, open, 6000, 1000)).toBe(true);
  });
});
