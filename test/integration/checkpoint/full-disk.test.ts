import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { Checkpoint, type Restorable } from "../../../src/checkpoint/checkpoint.ts";
import { restorePending } from "../../../src/checkpoint/restore-pending.ts";
import { openWindow } from "../../../src/checkpoint/window.ts";
import { HostError } from "../../../src/errors.ts";
import { hostFiles, type Files } from "../../../src/host/files/files.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { onSmallDisk } from "../../support/machine/small-disk.ts";
import { tempDir } from "../../support/temp-dir.ts";

const BOOT = "0197f1a2-0000-4000-8000-00000000b007";
const { signal } = new AbortController();
const refusal = (): Promise<never> => Promise.reject(new HostError("disk-full", "no space left on device"));
const disk = hostFiles();
const full: Files = { ...disk, writeAtomic: refusal };
const readOnly: Files = { ...full, remove: refusal, move: refusal };

/** A change of an agent that has exited, whose one step was begun. */
async function leftBehind() {
  const dir = join(tempDir(), "desired");
  mkdirSync(dir);
  const clock = new FakeClock();
  const checkpoint = new Checkpoint(disk, dir);
  const about = {
    owner: { pid: 1, startTicks: "no such process" },
    before: { session: true, gateways: [] },
    versions: { node: 2 },
    guards: { network: {} },
    isLocal: false,
  };
  const now = { bootId: BOOT, sinceBoot: clock.sinceBoot() };
  const window = openWindow({ mode: "save", seconds: 30 }, about, clock.now(), now);
  await checkpoint.open([{ section: "network", undo: { kind: "restore" } }], clock.now(), window);
  await checkpoint.mark(0);
  const undone: unknown[] = [];
  const restorables: Restorable[] = [
    { name: "network", applyStored: (step) => Promise.resolve(void undone.push(step)) },
  ];
  const guard = (files: Files) =>
    restorePending({ files, clock, bootId: BOOT, dir, restorables, alone: (work) => work() }, signal);
  return { dir, checkpoint, undone, guard, restorables };
}

test("the guard restores on a full disk", async () => {
  const { guard, undone, checkpoint } = await leftBehind();
  expect(await guard(full)).toMatchObject({ is: "restored", restored: { undone: 1, failed: [] } });
  expect([undone.length, await checkpoint.isPending()]).toEqual([1, false]);
});

test("the guard restores on a disk that refuses all writes, and what it cannot remove is restored again", async () => {
  const { guard, undone } = await leftBehind();
  await expect(guard(readOnly)).rejects.toThrow("no space left");
  expect(undone).toHaveLength(1);
  expect(await guard(disk)).toMatchObject({ is: "restored" });
});

test("the agent cannot confirm or continue a change after that, though no note could be written", async () => {
  const { checkpoint, guard, undone, restorables } = await leftBehind();
  await guard(full);
  await expect(checkpoint.confirm()).rejects.toMatchObject({ code: "checkpoint-taken" });
  expect(await checkpoint.find()).toMatchObject({ isTaken: true });
  // A step may follow the guard.
  expect(await checkpoint.restore(restorables, signal)).toMatchObject({ undone: 1, failed: [] });
  expect([undone.length, checkpoint.pending]).toEqual([2, undefined]);
});

test("a rollback of a change with a successor leaves the newer one alone", async () => {
  const { checkpoint, undone, restorables, dir } = await leftBehind();
  const slow = new Checkpoint(disk, dir);
  expect(await slow.takeOver(checkpoint.pending?.id ?? "", 0)).toBe(true);
  await checkpoint.abandon();
  await checkpoint.open([{ section: "network", undo: { kind: "newer" } }], 0);
  await checkpoint.mark(0);
  expect(await slow.restore(restorables, signal)).toEqual({ undone: 0, failed: [], isDamaged: false });
  expect([undone, await checkpoint.isPending()]).toEqual([[], true]);
});

test("a real full disk prevents a new change, and a pending one ends when it is read-only", async () => {
  const source = new URL("../../../src/checkpoint/checkpoint.ts", import.meta.url).href;
  const outcome = await onSmallDisk(`
    const { writeFileSync, rmSync, mkdirSync, readdirSync } = await import("node:fs");
    const { Checkpoint } = await import(${JSON.stringify(source)});
    mkdirSync(root + "/desired");
    const fill = () => { let size = 300_000; while (size > 0) try { writeFileSync(root + "/fill" + size, "x".repeat(size)); } catch { size >>= 1; } };
    const code = (error) => error.code;
    const checkpoint = new Checkpoint(files, "/desired");
    const entries = [{ section: "network", undo: { text: "y".repeat(20_000) } }];
    fill();
    const opened = await checkpoint.open(entries, 0).catch(code);
    const left = [checkpoint.pending ?? null, readdirSync(root + "/desired")];
    for (const name of readdirSync(root)) if (name.startsWith("fill")) rmSync(root + "/" + name);
    await checkpoint.open(entries, 0);
    await checkpoint.mark(0);
    makeReadOnly();
    const undone = [];
    const section = { name: "network", applyStored: async () => void undone.push("once") };
    const restored = await checkpoint.restore([section], new AbortController().signal).catch(code);
    return { opened, left, restored, undone, pending: checkpoint.pending ?? null };
  `);
  expect(outcome).toEqual({
    opened: "disk-full",
    left: [null, []],
    restored: "read-only",
    undone: ["once"],
    pending: null,
  });
});
