import { spawn } from "node:child_process";
import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";
import { Checkpoint } from "../../../src/checkpoint/checkpoint.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { bundled } from "../../support/bundled.ts";
import { carry, fileMachine, fileSections } from "../../support/reconcile/checkpoint-machine.ts";
import { inLanes } from "../../support/network/lanes.ts";
import { sampleOf } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";

const CHILD = bundled(join(import.meta.dirname, "../../support/reconcile/checkpoint-child.ts"));
/** Each run mostly waits for the disk. */
const LANES = 3;
// Both sections have something taken away, changed and made, so that steps of every kind come in both directions of the order.
const before = { one: { a: "old", b: "old" }, two: { c: "old", d: "old", plain: "old" } };
const after = { one: { a: "new", e: "new" }, two: { c: "new", f: "new", plain: "new" } };
const files = hostFiles();

function machine(): string {
  const dir = tempDir();
  mkdirSync(join(dir, "desired"));
  for (const [part, values] of Object.entries(before)) {
    mkdirSync(join(dir, part));
    for (const [name, value] of Object.entries(values)) writeFileSync(join(dir, part, name), value);
  }
  return dir;
}

function copyOf(dir: string): string {
  const copy = join(tempDir(), "copy");
  cpSync(dir, copy, { recursive: true });
  return copy;
}

/** Runs the child until its n-th boundary, or to its end, and says how many there were. */
async function run(task: "pass" | "restore", dir: string, dieAt = 0): Promise<number> {
  const child = spawn(process.execPath, [CHILD, task, dir, JSON.stringify(after), String(dieAt)]);
  const ended = new Promise<object>((resolve) => child.once("close", (status, signal) => resolve({ signal, status })));
  const [stdout, stderr, how] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
  expect(how, stderr).toEqual(dieAt === 0 ? { signal: null, status: 0 } : { signal: "SIGKILL", status: null });
  return Number(stdout);
}

/** A sample of the boundaries of a run, the last always among them. */
function boundariesUpTo(count: number, label: string): readonly number[] {
  const others = Array.from({ length: count - 1 }, (_, i) => i + 1);
  return [...sampleOf(others, 8, label), count];
}

async function stateOf(dir: string): Promise<unknown> {
  const parts = ["one", "two"].map(async (part) => {
    const values = [...(await fileMachine(files, join(dir, part)).read())].filter(([name]) => !name.endsWith(".tmp"));
    return [part, Object.fromEntries(values)] as const;
  });
  return Object.fromEntries(await Promise.all(parts));
}

/** A machine whose pass was killed when its last step was done, and the checkpoint was about to be removed. */
async function lastPending(): Promise<string> {
  for (let dieAt = await run("pass", machine()); dieAt > 0; dieAt -= 1) {
    const dir = machine();
    await run("pass", dir, dieAt);
    if (await new Checkpoint(files, join(dir, "desired")).isPending()) return dir;
  }
  throw new Error("no checkpoint was ever pending");
}

async function restore(dir: string): Promise<void> {
  const checkpoint = new Checkpoint(files, join(dir, "desired"));
  const { failed } = await checkpoint.restore(fileSections(files, dir), new AbortController().signal);
  expect(failed).toEqual([]);
  expect(await checkpoint.isPending()).toBe(false);
}

test("a guarded pass, killed at any boundary, is old or new after the rollback, and new after the next pass", async () => {
  const whole = machine();
  const boundaries = await run("pass", whole);
  expect(await stateOf(whole)).toEqual(after);
  expect(boundaries).toBeGreaterThan(30);
  const ends = new Set<string>();
  await inLanes(boundariesUpTo(boundaries, "guarded pass"), LANES, async (dieAt) => {
    const dir = machine();
    await run("pass", dir, dieAt);
    const restarted = copyOf(dir);
    await restore(dir);
    const state = await stateOf(dir);
    expect([before, after], `killed at boundary ${dieAt}`).toContainEqual(state);
    ends.add(JSON.stringify(state));
    await carry(files, restarted, after);
    expect(await stateOf(restarted), `killed at boundary ${dieAt} and restarted`).toEqual(after);
    expect(await new Checkpoint(files, join(restarted, "desired")).isPending()).toBe(false);
  });
  expect(ends.size).toBe(2);
});

test("a rollback, killed at any boundary, ends in the old state when repeated", async () => {
  const dir = await lastPending();
  expect(await stateOf(dir)).toEqual(after);
  const restoring = await run("restore", copyOf(dir));
  expect(restoring).toBeGreaterThan(20);
  await inLanes(boundariesUpTo(restoring, "rollback"), LANES, async (dieAt) => {
    const copy = copyOf(dir);
    await run("restore", copy, dieAt);
    await restore(copy);
    expect(await stateOf(copy), `killed at boundary ${dieAt}`).toEqual(before);
  });
});
