import { expect, test } from "vitest";
import { compared, interleaved } from "../../../../../scripts/benches/l4/rounds.ts";

test("contenders take turns, each round starts with another, and the warm-up does not count", async () => {
  const order: string[] = [];
  const contender = (name: string) => () => {
    order.push(name);
    return Promise.resolve(order.length);
  };
  const values = await interleaved({ a: contender("a"), b: contender("b") }, { rounds: 2, warmUp: 1 });
  expect(order.join("")).toBe("abbaab");
  expect(values).toEqual({ a: [4, 5], b: [3, 6] });
});

test("a ratio is the median of those of the rounds and not that of the medians", () => {
  const figure = compared("cost", "s", [1, 2, 90], { name: "it", values: [10, 2, 30] });
  expect(figure).toEqual({ what: "cost", value: 2, unit: "s", peer: { name: "it", value: 10 }, ratio: 1 });
});
