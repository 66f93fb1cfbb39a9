import { describe, expect, it } from "vitest";
import type { OutwardHop } from "../../../../../src/overlay/mesh/paths/hop.ts";
import { FULL_STREAMS, MAX_SESSIONS, Outward } from "../../../../../src/overlay/mesh/paths/outward.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";

/** As much of a session as is looked at. */
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

function anOutward() {
  const hops: Loaded[] = [];
  const outward = new Outward({
    clock: new FakeClock(),
    raise: async () => {
      await new Promise(setImmediate);
      const hop = new Loaded();
      hops.push(hop);
      return hop as unknown as OutwardHop;
    },
  });
  return { outward, hops };
}

const { signal } = new AbortController();

describe("the sessions on which streams are opened", () => {
  it("are as many as the flows need and no more, and then there is a named refusal", async () => {
    const { outward, hops } = anOutward();
    const most = MAX_SESSIONS * FULL_STREAMS;
    await Promise.all(Array.from({ length: 1000 }, () => outward.take(signal)));
    expect(hops.length).toBeGreaterThanOrEqual(4);
    expect(hops.length).toBeLessThanOrEqual(6);
    await Promise.all(Array.from({ length: most - 1000 }, () => outward.take(signal)));
    expect(hops).toHaveLength(MAX_SESSIONS);
    expect(hops.every(({ load }) => load === FULL_STREAMS)).toBe(true);
    await expect(outward.take(signal)).rejects.toMatchObject({ code: "too-many-flows" });
    expect(hops).toHaveLength(MAX_SESSIONS);
  });

  it("tell everybody who waits when the path is lost, and are dialled anew for the next", async () => {
    const { outward, hops } = anOutward();
    const waiting = Array.from({ length: 300 }, () => outward.take(signal));
    const told = Promise.allSettled(waiting);
    outward.drop("the cable was cut");
    expect(new Set((await told).map(({ status }) => status))).toEqual(new Set(["rejected"]));
    await outward.take(signal);
    expect(hops.filter(({ isDestroyed }) => !isDestroyed)).toHaveLength(1);
  });

  it("are not dialled for whoever has left", async () => {
    const { outward, hops } = anOutward();
    await expect(outward.take(AbortSignal.abort(new Error("left")))).rejects.toThrow("left");
    expect(hops).toHaveLength(0);
  });
});
