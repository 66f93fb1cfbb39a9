import { describe, expect, it } from "vitest";
import { askMachine, nameCache, type Answer } from "../../../../src/overlay/dial/name-cache.ts";
import { FakeClock, settle } from "../../../support/fake-clock.ts";

function rig(answers: (Answer | Error | Promise<Answer>)[]) {
  const clock = new FakeClock();
  const requested: string[] = [];
  const cache = nameCache(clock, (name) => {
    requested.push(name);
    const next = answers.shift();
    return next === undefined || next instanceof Error
      ? Promise.reject(next ?? new Error("no more"))
      : Promise.resolve(next);
  });
  return { clock, requested, cache };
}

describe("nameCache", () => {
  it.each([
    [60, 60],
    [1, 5],
    [86_400, 300],
    [undefined, 30],
  ])("holds an answer of %s s for %s s", async (ttlSeconds, held) => {
    const answer = { addresses: ["192.0.2.1"], ...(ttlSeconds === undefined ? {} : { ttlSeconds }) };
    const { clock, requested, cache } = rig([answer, { addresses: ["192.0.2.2"] }]);
    expect(await cache.resolve("a")).toEqual(["192.0.2.1"]);
    await clock.advance(held * 1000 - 1);
    expect(await cache.resolve("a")).toEqual(["192.0.2.1"]);
    expect(requested).toHaveLength(1);
    await clock.advance(1);
    expect(await cache.resolve("a")).toEqual(["192.0.2.2"]);
  });

  it("resolves once for all waiting requests", async () => {
    const { requested, cache } = rig([{ addresses: ["192.0.2.1"] }]);
    await Promise.all([cache.resolve("a"), cache.resolve("a"), cache.resolve("a")]);
    expect(requested).toEqual(["a"]);
  });

  it("keeps the last good answer while the resolver is silent or empty, and retries after 5 s", async () => {
    const { clock, requested, cache } = rig([
      { addresses: ["192.0.2.1"], ttlSeconds: 5 },
      new Error("timeout"),
      { addresses: [] },
      { addresses: ["192.0.2.3"] },
    ]);
    const seen: (readonly string[])[] = [];
    for (let i = 0; i < 4; i += 1) {
      seen.push(await cache.resolve("a"));
      await clock.advance(5000);
    }
    expect(seen).toEqual([["192.0.2.1"], ["192.0.2.1"], ["192.0.2.1"], ["192.0.2.3"]]);
    expect(requested).toHaveLength(4);
  });

  it("resolves a name with a failed answer again, at most every 5 s", async () => {
    const { clock, requested, cache } = rig([
      { addresses: ["192.0.2.1"], ttlSeconds: 300 },
      { addresses: ["192.0.2.2"] },
    ]);
    cache.expireSoon("a");
    await cache.resolve("a");
    await clock.advance(4999);
    cache.expireSoon("a");
    expect(await cache.resolve("a")).toEqual(["192.0.2.1"]);
    await clock.advance(1);
    expect(await cache.resolve("a")).toEqual(["192.0.2.2"]);
    expect(requested).toHaveLength(2);
  });

  it("waits at most a second if it has an answer", async () => {
    const { clock, cache } = rig([{ addresses: ["192.0.2.1"], ttlSeconds: 5 }, new Promise<Answer>(() => undefined)]);
    await cache.resolve("a");
    await clock.advance(5000);
    let got: readonly string[] | undefined;
    void cache.resolve("a").then((addresses) => (got = addresses));
    await settle();
    expect(got).toBeUndefined();
    await clock.advance(1000);
    expect(got).toEqual(["192.0.2.1"]);
  });

  it("forgets names that are not served any more", async () => {
    const { requested, cache } = rig([{ addresses: ["192.0.2.1"] }, { addresses: ["192.0.2.2"] }]);
    await cache.resolve("a");
    cache.keepOnly(new Set(["b"]));
    expect(await cache.resolve("a")).toEqual(["192.0.2.2"]);
    expect(requested).toHaveLength(2);
  });
});

describe("askMachine", () => {
  it("resolves the machine's own names", async () => {
    expect((await askMachine("localhost")).addresses).toContain("127.0.0.1");
    expect(await askMachine("192.0.2.4")).toEqual({ addresses: ["192.0.2.4"] });
  });
});
