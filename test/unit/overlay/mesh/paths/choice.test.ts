import { describe, expect, it } from "vitest";
import {
  choose,
  HOLD_MS,
  NO_CHOICE,
  ranked,
  type Candidate,
  type Choice,
} from "../../../../../src/overlay/mesh/paths/choice.ts";

function path(gateway: string, more: Partial<Candidate> = {}): Candidate {
  return { gateway, path: "", isDefault: true, upSince: 0, rttMs: 10, ...more };
}

const on = (gateway: string, name = ""): Choice => ({ pathId: { gateway, path: name }, better: undefined });

describe("the path that carries new traffic", () => {
  it("is a default one that is up, and of those the nearest", () => {
    const all = [
      path("a", { isDefault: false, rttMs: 1 }),
      path("b", { rttMs: 30 }),
      path("c", { rttMs: 20 }),
      path("d", { upSince: undefined, rttMs: 2 }),
      path("e", { rttMs: undefined }),
    ];
    expect(ranked(all).map(({ gateway }) => gateway)).toEqual(["c", "b", "e", "a"]);
    expect(choose(all, NO_CHOICE, 5)).toEqual(on("c"));
  });

  it("is none while none is up, and the last one is remembered", () => {
    expect(choose([], NO_CHOICE, 5)).toEqual(NO_CHOICE);
    expect(choose([path("a", { upSince: undefined })], on("a"), 5)).toEqual(on("a"));
  });

  it("changes at once when the current one is down or removed", () => {
    expect(choose([path("a", { upSince: undefined }), path("b")], on("a"), 5)).toEqual(on("b"));
    expect(choose([path("b")], on("a"), 5)).toEqual(on("b"));
  });

  it("returns to a default one only after it was up for a while", () => {
    const all = [path("a", { isDefault: false }), path("b", { upSince: 100 })];
    const first = choose(all, on("a"), 100);
    expect(first).toEqual({ ...on("a"), better: { pathId: on("b").pathId, since: 100 } });
    expect(choose(all, first, 99 + HOLD_MS).pathId).toEqual(on("a").pathId);
    expect(choose(all, first, 100 + HOLD_MS)).toEqual(on("b"));
  });

  it("does not follow one that flaps", () => {
    const backup = path("a", { isDefault: false });
    let choice = choose([backup, path("b", { upSince: 0 })], on("a"), 0);
    for (let now = 1000; now < 100_000; now += 6000) {
      choice = choose([backup, path("b", { upSince: undefined })], choice, now);
      choice = choose([backup, path("b", { upSince: now + 500 })], choice, now + 500);
      choice = choose([backup, path("b", { upSince: now + 500 })], choice, now + 5000);
      expect(choice.pathId).toEqual(on("a").pathId);
    }
  });

  it("starts its count again when the better one was down in between", () => {
    const backup = path("a", { isDefault: false });
    const choice = choose([backup, path("b", { upSince: 0 })], on("a"), 0);
    const again = choose([backup, path("b", { upSince: 9000 })], choice, HOLD_MS);
    expect(again.pathId).toEqual(on("a").pathId);
    expect(again.better?.since).toBe(9000);
  });

  it("ignores small differences of any duration", () => {
    const all = [path("a", { rttMs: 10 }), path("b", { rttMs: 8.5 })];
    let choice = on("a");
    for (let now = 0; now < 100_000; now += 500) choice = choose(all, choice, now);
    expect(choice).toEqual(on("a"));
    const near = [path("a", { rttMs: 1 }), path("b", { rttMs: 0.1 })];
    expect(choose(near, on("a"), 0).better).toBeUndefined();
  });

  it("changes to one that is clearly nearer for a while", () => {
    const all = [path("a", { rttMs: 40 }), path("b", { rttMs: 10 })];
    const choice = choose(all, on("a"), 0);
    expect(choice.pathId).toEqual(on("a").pathId);
    expect(choose(all, choice, HOLD_MS).pathId).toEqual(on("b").pathId);
    const between = choose([path("a", { rttMs: 10 }), path("b", { rttMs: 10 })], choice, 5000);
    expect(choose(all, between, HOLD_MS).pathId).toEqual(on("a").pathId);
  });
});
