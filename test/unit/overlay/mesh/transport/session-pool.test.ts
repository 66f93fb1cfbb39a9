import { describe, expect, it } from "vitest";
import { SessionError } from "../../../../../src/errors.ts";
import { MAX_STREAMS } from "../../../../../src/overlay/mesh/transport/http2.ts";
import {
  LOADED_STREAMS,
  MAX_SESSIONS,
  SessionPool,
  type PooledSession,
} from "../../../../../src/overlay/mesh/transport/session-pool.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";

class Loaded implements PooledSession {
  load = 0;
  readonly maxStreams: number;
  isOpen = true;
  isDestroyed = false;
  closing: Promise<void>;
  #close = (): void => undefined;
  onIdle: (isIdle: boolean) => void = () => undefined;

  constructor(maxStreams: number) {
    this.maxStreams = maxStreams;
    this.closing = new Promise((resolve) => {
      this.#close = resolve;
    });
  }

  reserve(): void {
    this.load += 1;
    if (this.load === 1) this.onIdle(false);
  }

  release(): void {
    this.load -= 1;
    if (this.load === 0) this.onIdle(true);
  }

  retire(): void {
    this.isOpen = false;
    this.#close();
  }

  destroy(): void {
    this.isDestroyed = true;
    this.retire();
  }
}

function aPool(maxDials = 1, maxStreams = MAX_STREAMS) {
  const sessions: Loaded[] = [];
  const clock = new FakeClock();
  const dials = { running: 0, most: 0, failure: undefined as Error | undefined };
  const pool = new SessionPool({
    clock,
    maxDials,
    to: "the gateway",
    open: async () => {
      dials.running += 1;
      dials.most = Math.max(dials.most, dials.running);
      await new Promise(setImmediate);
      dials.running -= 1;
      if (dials.failure !== undefined) throw dials.failure;
      const session = new Loaded(maxStreams);
      sessions.push(session);
      return session;
    },
  });
  const take = (count: number): Promise<Loaded[]> => Promise.all(Array.from({ length: count }, () => pool.take()));
  return { pool, sessions, clock, dials, take };
}

const lost = new SessionError("tunnel-lost", "the cable was cut");

describe("a pool of sessions", () => {
  it.each([1, MAX_SESSIONS])(
    "has as many as the flows need, dialled %i at a time, then refuses by name",
    async (most) => {
      const { pool, sessions, dials, take } = aPool(most);
      await take(1000);
      expect(sessions.length).toBeGreaterThanOrEqual(4);
      expect(sessions.length).toBeLessThanOrEqual(6);
      expect(dials.most).toBe(Math.min(most, 4));
      await take(MAX_SESSIONS * MAX_STREAMS - 1000);
      expect(sessions).toHaveLength(MAX_SESSIONS);
      expect(sessions.every(({ load }) => load === MAX_STREAMS)).toBe(true);
      await expect(pool.take()).rejects.toMatchObject({ code: "too-many-flows" });
      expect(sessions).toHaveLength(MAX_SESSIONS);
    },
  );

  it("dials for a request that comes while all are full and one is about to close", async () => {
    const { sessions, take } = aPool(MAX_SESSIONS);
    await take(MAX_SESSIONS * MAX_STREAMS);
    const [ending] = sessions;
    if (ending !== undefined) ending.isOpen = false;
    const taken = take(1);
    ending?.retire();
    expect(await taken).toEqual([sessions[MAX_SESSIONS]]);
  });

  it("dials another before the first is full, and nobody waits for it", async () => {
    const { sessions, dials, take } = aPool();
    await take(LOADED_STREAMS);
    expect(dials.running).toBe(0);
    await take(1);
    expect([sessions.length, dials.running]).toEqual([1, 1]);
    await new Promise(setImmediate);
    await take(1);
    expect(sessions.map(({ load }) => load)).toEqual([LOADED_STREAMS + 1, 1]);
  });

  it("dials one at a time while there is room, and none beyond the maximum", async () => {
    const { sessions, dials, take } = aPool(MAX_SESSIONS);
    await take(LOADED_STREAMS);
    await take(10);
    expect(dials.running).toBe(1);
    await new Promise(setImmediate);
    await take(MAX_SESSIONS * MAX_STREAMS - LOADED_STREAMS - 10);
    expect(sessions).toHaveLength(MAX_SESSIONS);
    sessions[0]?.release();
    expect(await take(1)).toEqual([sessions[0]]);
    await new Promise(setImmediate);
    expect([sessions.length, dials.running]).toEqual([MAX_SESSIONS, 0]);
  });

  it.each([0, 1])("dials no more than the maximum for sessions of %i streams", async (maxStreams) => {
    const { pool, sessions } = aPool(MAX_SESSIONS, maxStreams);
    const results = await Promise.allSettled(Array.from({ length: 300 }, () => pool.take()));
    expect(sessions).toHaveLength(MAX_SESSIONS);
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(MAX_SESSIONS * maxStreams);
  });

  it("fails every waiting request when it is dropped, and dials anew for the next", async () => {
    const { pool, sessions } = aPool();
    const waiting = Array.from({ length: 300 }, () => pool.take());
    const failed = Promise.allSettled(waiting);
    pool.drop(lost);
    expect(new Set((await failed).map(({ status }) => status))).toEqual(new Set(["rejected"]));
    await pool.take();
    expect(sessions.filter(({ isDestroyed }) => !isDestroyed)).toHaveLength(1);
  });

  it("ends its sessions when it is dropped, and one whose dial ends later", async () => {
    const { pool, sessions, take } = aPool();
    await take(LOADED_STREAMS);
    await take(1);
    pool.drop(lost);
    await new Promise(setImmediate);
    expect(sessions.map(({ isDestroyed }) => isDestroyed)).toEqual([true, true]);
  });

  it("keeps the requests waiting for which another dial is running when one fails", async () => {
    const { dials, pool } = aPool(2);
    dials.failure = lost;
    const waiting = Array.from({ length: MAX_STREAMS + 1 }, () => pool.take());
    const results = Promise.allSettled(waiting);
    await expect(waiting.at(-1)).rejects.toBe(lost);
    dials.failure = undefined;
    const failed = (await results).filter(({ status }) => status === "rejected");
    expect(failed).toHaveLength(1);
  });

  it("fails every waiting request with the reason of the dial, and tries again for the next", async () => {
    const { dials, pool, take } = aPool();
    dials.failure = lost;
    const results = await Promise.allSettled([pool.take(), pool.take()]);
    expect(results).toEqual([
      { status: "rejected", reason: lost },
      { status: "rejected", reason: lost },
    ]);
    dials.failure = undefined;
    expect(await take(1)).toHaveLength(1);
  });

  it("does not dial for a cancelled request, and reserves nothing for one cancelled while it waits", async () => {
    const { pool, sessions, take } = aPool();
    await expect(pool.take(AbortSignal.abort(new Error("left")))).rejects.toThrow("left");
    expect(sessions).toHaveLength(0);
    const leaving = new AbortController();
    const cancelled = pool.take(leaving.signal);
    const stays = take(1);
    leaving.abort(new Error("left"));
    await expect(cancelled).rejects.toThrow("left");
    await stays;
    expect(sessions.map(({ load }) => load)).toEqual([1]);
  });

  it("retires a session after a minute without streams, and not before", async () => {
    const { sessions, clock, take } = aPool();
    const [session] = await take(1);
    await clock.advance(120_000);
    expect(session?.isOpen).toBe(true);
    session?.release();
    await clock.advance(59_000);
    session?.reserve();
    session?.release();
    await clock.advance(59_000);
    expect(session?.isOpen).toBe(true);
    await clock.advance(1000);
    expect(session?.isOpen).toBe(false);
    expect(await take(1)).not.toEqual([session]);
    expect(sessions).toHaveLength(2);
  });
});
