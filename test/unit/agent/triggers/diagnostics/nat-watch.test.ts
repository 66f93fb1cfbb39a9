import { expect, test } from "vitest";
import { nextNatBook, startNatWatch } from "../../../../../src/agent/triggers/diagnostics/nat-watch.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";

const counters = (values: Readonly<Record<string, number>>) => new Map(Object.entries(values));
const signal = new AbortController().signal;

test("the first reading counts nothing; later rises are hits, with the first and the last time", () => {
  let book = nextNatBook(undefined, counters({ a: 5, b: 0 }), 100);
  expect(book.get("a")).toEqual({ hits: 0, seen: 5, initialHit: undefined, latestHit: undefined });
  book = nextNatBook(book, counters({ a: 7, b: 0, c: 2 }), 110);
  book = nextNatBook(book, counters({ a: 8, b: 0, c: 2 }), 120);
  expect([...book]).toEqual([
    ["a", { hits: 3, seen: 8, initialHit: 110, latestHit: 120 }],
    ["b", { hits: 0, seen: 0, initialHit: undefined, latestHit: undefined }],
    ["c", { hits: 2, seen: 2, initialHit: 110, latestHit: 110 }],
  ]);
});

test("a reloaded table loses no count, and a removed translation is deleted", () => {
  let book = nextNatBook(nextNatBook(undefined, counters({ a: 0, b: 1 }), 1), counters({ a: 9, b: 1 }), 2);
  book = nextNatBook(book, counters({ a: 4 }), 3);
  expect([...book]).toEqual([["a", { hits: 13, seen: 4, initialHit: 2, latestHit: 3 }]]);
});

function stage(size: number) {
  const clock = new FakeClock();
  const errors: unknown[] = [];
  const machine = { size, reads: 0, now: counters({ a: 1 }), refusal: undefined as Error | undefined };
  const watch = startNatWatch({
    clock,
    read: () => {
      machine.reads += 1;
      return machine.refusal === undefined ? Promise.resolve(machine.now) : Promise.reject(machine.refusal);
    },
    size: () => machine.size,
    onError: (error) => errors.push(error),
  });
  return { clock, errors, machine, watch };
}

test("reads nothing without a translation", async () => {
  const { clock, machine, watch } = stage(0);
  watch.refresh();
  await clock.advance(3_600_000);
  expect(await watch.hits(signal)).toEqual(new Map());
  expect(machine.reads).toBe(0);
  expect(clock.pendingTimers).toBe(0);
});

test("reads at once and every ten seconds, until there is no translation", async () => {
  const { clock, machine, watch } = stage(1);
  watch.refresh();
  watch.refresh();
  await clock.advance(0);
  expect(machine.reads).toBe(1);
  machine.now = counters({ a: 3 });
  await clock.advance(10_000);
  expect(machine.reads).toBe(2);
  expect((await watch.hits(signal)).get("a")).toMatchObject({ hits: 2 });
  machine.size = 0;
  watch.refresh();
  expect(clock.pendingTimers).toBe(0);
  machine.size = 1;
  machine.now = counters({ b: 4 });
  watch.refresh();
  // A translation that was added without a reading is new, and each of its hits counts.
  expect((await watch.hits(signal)).get("b")).toMatchObject({ hits: 4 });
  watch.close();
  expect(clock.pendingTimers).toBe(0);
});

test("reads thousands once a minute", async () => {
  const { clock, machine, watch } = stage(5000);
  watch.refresh();
  await clock.advance(0);
  await clock.advance(59_999);
  expect(machine.reads).toBe(1);
  await clock.advance(1);
  expect(machine.reads).toBe(2);
  watch.close();
});

test("reports and retries a failing reading", async () => {
  const { clock, errors, machine, watch } = stage(1);
  machine.refusal = new Error("no nft");
  watch.refresh();
  await clock.advance(0);
  expect(errors).toEqual([machine.refusal]);
  await expect(watch.hits(signal)).rejects.toThrow("no nft");
  machine.refusal = undefined;
  await clock.advance(10_000);
  expect((await watch.hits(signal)).get("a")).toMatchObject({ hits: 0 });
  watch.close();
});

test("a reset counter starts at zero, and the others continue", async () => {
  const { machine, watch } = stage(2);
  machine.now = counters({ a: 0, b: 0 });
  await watch.hits(signal);
  machine.now = counters({ a: 2, b: 2 });
  await watch.hits(signal);
  expect(watch.reset(["a", "gone"])).toBe(2);
  machine.now = counters({ a: 3, b: 3 });
  const hits = await watch.hits(signal);
  expect([hits.get("a")?.hits, hits.get("b")?.hits]).toEqual([1, 3]);
});
