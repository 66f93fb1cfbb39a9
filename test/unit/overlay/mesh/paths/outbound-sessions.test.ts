import { describe, expect, it } from "vitest";
import type { OutboundHop } from "../../../../../src/overlay/mesh/paths/hop.ts";
import {
  FULL_STREAMS,
  MAX_SESSIONS,
  OutboundSessions,
} from "../../../../../src/overlay/mesh/paths/outbound-sessions.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";

/** The tested parts of a session. */
class Loaded {
  load = 0;
  readonly streams = 0;
  isDestroyed = false;
  readonly isOpen = true;
  readonly closing = new Promise<never>(() => undefined);
  readonly session = { request: () => undefined };
  onIdle = (): void => undefined;
  destroy(): void {
    this.isDestroyed = true;
  }
  claim(): void {
    this.load += 1;
  }
}

function anOutbound() {
  const hops: Loaded[] = [];
  const outbound = new OutboundSessions({
    clock: new FakeClock(),
    raise: async () => {
      await new Promise(setImmediate);
      const hop = new Loaded();
      hops.push(hop);
      return hop as unknown as OutboundHop;
    },
  });
  return { outbound, hops };
}

const { signal } = new AbortController();

describe("outbound sessions", () => {
  it("are as many as the flows need, up to a limit with a named refusal", async () => {
    const { outbound, hops } = anOutbound();
    const most = MAX_SESSIONS * FULL_STREAMS;
    await Promise.all(Array.from({ length: 1000 }, () => outbound.take(signal)));
    expect(hops.length).toBeGreaterThanOrEqual(4);
    expect(hops.length).toBeLessThanOrEqual(6);
    await Promise.all(Array.from({ length: most - 1000 }, () => outbound.take(signal)));
    expect(hops).toHaveLength(MAX_SESSIONS);
    expect(hops.every(({ load }) => load === FULL_STREAMS)).toBe(true);
    await expect(outbound.take(signal)).rejects.toMatchObject({ code: "too-many-flows" });
    expect(hops).toHaveLength(MAX_SESSIONS);
  });

  it("fail all waiting flows when the path is lost, and are dialled again for the next", async () => {
    const { outbound, hops } = anOutbound();
    const waiting = Array.from({ length: 300 }, () => outbound.take(signal));
    const told = Promise.allSettled(waiting);
    outbound.drop("the cable was cut");
    expect(new Set((await told).map(({ status }) => status))).toEqual(new Set(["rejected"]));
    await outbound.take(signal);
    expect(hops.filter(({ isDestroyed }) => !isDestroyed)).toHaveLength(1);
  });

  it("are not dialled for a cancelled request", async () => {
    const { outbound, hops } = anOutbound();
    await expect(outbound.take(AbortSignal.abort(new Error("left")))).rejects.toThrow("left");
    expect(hops).toHaveLength(0);
  });
});
