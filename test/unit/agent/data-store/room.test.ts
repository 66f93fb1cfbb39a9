import { expect, test } from "vitest";
import { Room } from "../../../../src/agent/data-store/room.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

interface Given {
  readonly maxBytes?: number;
  readonly free?: number;
}

/** A space budget in a store with the test's usage. */
function stage({ maxBytes, free = 10_000 }: Given) {
  const clock = new FakeClock();
  const disk = { used: 100, free, counts: 0 };
  const { signal } = new AbortController();
  const store = {
    space: () => Promise.resolve({ freeBytes: disk.free, totalBytes: 10_000 }),
    used: () => {
      disk.counts += 1;
      return Promise.resolve(disk.used);
    },
  };
  const room = new Room({ clock, store, maxBytes, reserveRatio: 0.1, signal });
  return { room, clock, disk, left: (id?: string) => room.left(signal, id) };
}

test("counts what other tasks have written since the last count, and will still write, as used", async () => {
  const { room, left, disk } = stage({ maxBytes: 1000 });
  expect(await left()).toBe(900);
  room.begin("a", 0);
  expect(room.heard("a", 50, 300)).toBeUndefined();
  expect(await left()).toBe(600);
  expect(await left("a")).toBe(850);
  room.heard("a", 300, 300);
  room.end("a", true);
  expect(await left()).toBe(600);
  expect(disk.counts).toBe(1);
});

test("of two downloads that started with the same free space the later one fails", async () => {
  const { room, left } = stage({ maxBytes: 1000 });
  await left();
  for (const id of ["a", "b"]) room.begin(id, 0);
  expect(room.heard("b", 10, 500)).toBeUndefined();
  expect(room.heard("a", 10, 500)).toBeUndefined();
  expect(room.heard("b", 20, 500)).toBe(
    "with the other downloads it is more than the data store's quota of 1.0 kB leaves",
  );
  room.end("b", false);
  expect(room.heard("a", 500, 500)).toBeUndefined();
});

test("applies the quota to all downloads of unknown size together", async () => {
  const { room, left } = stage({ maxBytes: 1000 });
  await left();
  for (const id of ["a", "b"]) room.begin(id, 0);
  expect(room.heard("a", 500, undefined)).toBeUndefined();
  expect(room.heard("b", 400, undefined)).toBeUndefined();
  expect(room.heard("b", 401, undefined)).toContain("quota");
});

test("counts what an earlier attempt has left, once", async () => {
  const { room, left, disk } = stage({ maxBytes: 1000 });
  disk.used = 700;
  await left();
  room.begin("a", 600);
  expect(room.heard("a", 800, 900)).toBeUndefined();
  expect(room.heard("a", 800, 901)).toContain("quota");
});

test("a new count includes new files, and removed ones are counted again", async () => {
  const { room, left, disk, clock } = stage({ maxBytes: 1000 });
  await left();
  room.begin("a", 0);
  room.heard("a", 200, 300);
  room.end("a", true);
  disk.used = 350;
  await clock.advance(60_000);
  expect(await left()).toBe(650);
  disk.used = 100;
  room.forget();
  expect(await left()).toBe(900);
});

test("counts on the disk, too, what other tasks will still write", async () => {
  const { room, left, disk } = stage({ free: 3000 });
  for (const id of ["a", "b"]) room.begin(id, 0);
  room.heard("a", 0, 1500);
  expect(await room.judge("a")).toBeUndefined();
  room.heard("b", 0, 600);
  expect(await room.judge("b")).toBe("with the other downloads it is 100 B more than the disk has room for");
  disk.free = 1100 + 1000 - 1;
  room.heard("a", 500, 1500);
  room.end("b", false);
  expect(await left()).toBeUndefined();
  disk.free = 2000;
  await expect(left()).rejects.toMatchObject({
    code: "disk-full",
    message: expect.stringContaining("others") as string,
  });
});
