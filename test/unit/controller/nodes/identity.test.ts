import { expect, test } from "vitest";
import { ALTERNATION_MS, judgeHello, NEW_IDENTITY, settleIdentity } from "../../../../src/controller/nodes/identity.ts";

interface Hello {
  readonly n: number;
  readonly bootId: string;
  readonly at: number;
}

function judge(hellos: readonly Hello[]) {
  let trail = NEW_IDENTITY;
  const shared: number[] = [];
  for (const [index, hello] of hellos.entries()) {
    const judged = judgeHello(trail, hello, hello.at);
    trail = judged.trail;
    if (judged.isShared) shared.push(index);
  }
  return { shared, held: trail.isHeld, trail };
}

const minute = 60_000;

test.each<[string, readonly Hello[], number[], boolean]>([
  ["a counter that rises", [1, 2, 3].map((n) => ({ n, bootId: "a", at: n })), [], false],
  [
    "a reboot",
    [
      { n: 1, bootId: "a", at: 0 },
      { n: 2, bootId: "b", at: 1 },
    ],
    [],
    false,
  ],
  [
    "a counter that stands",
    [
      { n: 5, bootId: "a", at: 0 },
      { n: 5, bootId: "a", at: 1 },
    ],
    [1],
    false,
  ],
  [
    "a node restored from a snapshot, reported once",
    [
      { n: 50, bootId: "a", at: 0 },
      { n: 7, bootId: "b", at: 1 },
      { n: 8, bootId: "b", at: 2 },
      { n: 9, bootId: "b", at: 3 },
    ],
    [1],
    false,
  ],
  [
    "two machines that alternate",
    [
      { n: 6, bootId: "a", at: 0 },
      { n: 6, bootId: "b", at: minute },
      { n: 7, bootId: "a", at: 2 * minute },
    ],
    [1, 2],
    true,
  ],
  ["two processes of one boot that alternate", [6, 6, 7, 7].map((n, at) => ({ n, bootId: "a", at })), [1, 3], true],
  [
    "signs far apart",
    [
      { n: 6, bootId: "a", at: 0 },
      { n: 6, bootId: "a", at: 1 },
      { n: 6, bootId: "a", at: 2 + ALTERNATION_MS },
    ],
    [1, 2],
    false,
  ],
])("%s", (_what, hellos, shared, held) => {
  expect(judge(hellos)).toMatchObject({ shared, held });
});

test("a hold stays until it is settled, and then the current machine is the one", () => {
  const { trail } = judge([6, 6, 7, 7, 8, 9, 10].map((n, at) => ({ n, bootId: "a", at })));
  expect(trail.isHeld).toBe(true);
  const settled = settleIdentity(trail);
  expect(judgeHello(settled, { n: 11, bootId: "a" }, 100)).toMatchObject({ isShared: false, trail: { isHeld: false } });
});

test("it remembers eight boots at most", () => {
  const { trail, shared } = judge(Array.from({ length: 50 }, (_, i) => ({ n: i + 1, bootId: `boot${i}`, at: i })));
  expect(trail.earlierBoots).toHaveLength(8);
  expect(shared).toEqual([]);
});
