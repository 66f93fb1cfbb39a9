import { expect, test } from "vitest";
import { reverseNames } from "../../../../../src/agent/telemetry/conditions/reverse-names.ts";
import { FakeClock, settle } from "../../../../support/fake-clock.ts";

function setUp(answer: (ip: string) => Promise<string | undefined>) {
  const clock = new FakeClock();
  const requested: string[] = [];
  const names = reverseNames(clock, (ip) => {
    requested.push(ip);
    return answer(ip);
  });
  return { clock, requested, names };
}

test("resolves a name in the background, and caches it for an hour", async () => {
  const { clock, requested, names } = setUp((ip) => Promise.resolve(`${ip}.example.org`));
  expect(names.nameOf("10.0.0.1")).toBe("10.0.0.1");
  await settle();
  expect(names.nameOf("10.0.0.1")).toBe("10.0.0.1.example.org");
  await clock.advance(3_599_000);
  names.nameOf("10.0.0.1");
  expect(requested).toHaveLength(1);
  await clock.advance(1000);
  expect(names.nameOf("10.0.0.1")).toBe("10.0.0.1.example.org");
  expect(requested).toHaveLength(2);
});

test.each([
  ["none", () => Promise.resolve(undefined)],
  ["an empty one", () => Promise.resolve("")],
  ["one that is too long", () => Promise.resolve("x".repeat(254))],
  ["a failure", () => Promise.reject(new Error("no"))],
])("an address with %s is its own name, and is not requested repeatedly", async (_, answer) => {
  const { requested, names } = setUp(answer);
  names.nameOf("10.0.0.1");
  await settle();
  expect(names.nameOf("10.0.0.1")).toBe("10.0.0.1");
  expect(requested).toHaveLength(1);
});

test("limits the number of concurrent requests, each name once", () => {
  const { requested, names } = setUp(() => new Promise(() => undefined));
  for (let round = 0; round < 2; round += 1) for (let n = 1; n <= 20; n += 1) names.nameOf(`10.0.0.${n}`);
  expect(requested).toEqual(["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]);
});

test("limits the cache, and keeps the newest", async () => {
  const { requested, names } = setUp((ip) => Promise.resolve(ip));
  for (let n = 0; n < 4097; n += 1) {
    names.nameOf(`10.0.${n >> 8}.${n & 255}`);
    await settle();
  }
  names.nameOf("10.0.16.0");
  expect(requested).toHaveLength(4097);
  names.nameOf("10.0.0.0");
  expect(requested).toHaveLength(4098);
});
