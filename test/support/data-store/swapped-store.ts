import { spawn } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, statSync, utimesSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { openStore } from "../../../src/host/data-store/open-store.ts";
import type { Store } from "../../../src/host/data-store/store.ts";
import type { DataStoreEntry } from "../../../src/protocol/triggers/data-store.ts";

export interface SwapOutcome {
  readonly operations: number;
  /** Number of operations that succeeded, and of those refused because of a link or a missing path. */
  readonly done: number;
  readonly refused: number;
  /** Number of swaps by the other process. */
  readonly swaps: number;
  /** Operations that exposed outside files, and outside files that were changed, created, removed or read. */
  readonly escapes: readonly string[];
  /** Whether reads are detected, by the file system's access times. */
  readonly isReadingSeen: boolean;
}

const CANARY = "outside of the store";
/** Paths that are swapped for links to the canaries: a directory, one inside it, and a file. */
const SWAPPED = ["images/a", "images/a/b", "images/a/b/secret"] as const;
/** Exist for any swapped directory. */
const CANARIES = ["secret", "b/secret", "b/b/secret"] as const;

const SWAPPER = `
  const fs = require("node:fs");
  const { join } = require("node:path");
  const [root, outside, ...swapped] = process.argv.slice(1);
  const may = (act) => { try { act(); } catch {} };
  const isLink = (path) => { try { return fs.lstatSync(path).isSymbolicLink(); } catch { return false; } };
  let swaps = 0;
  const round = () => {
    for (let index = 0; index < 200; index += 1) {
      for (const name of swapped) {
        const path = join(root, name);
        const aside = path + ".aside";
        may(() => fs.renameSync(path, aside));
        may(() => fs.symlinkSync(name.endsWith("secret") ? join(outside, "secret") : outside, path));
        if (isLink(path)) { swaps += 1; may(() => fs.unlinkSync(path)); }
        may(() => fs.renameSync(aside, path));
        may(() => fs.rmSync(aside, { recursive: true }));
      }
      may(() => fs.mkdirSync(join(root, "images/a/b"), { recursive: true }));
      may(() => fs.writeFileSync(join(root, "images/a/b/secret"), "inside", { flag: "wx" }));
    }
    process.stdout.write(swaps + "\\n");
    setImmediate(round);
  };
  process.stdin.on("end", () => process.exit()).resume();
  round();`;

/**
 * Lists, opens, makes, removes and writes in a store while another process continuously swaps directories and files for links that lead
 * outside, and back.
 */
export async function besideSwapping(dir: string, operations: number): Promise<SwapOutcome> {
  const root = join(dir, "store");
  const outside = join(dir, "outside");
  mkdirSync(join(outside, "b/b"), { recursive: true });
  for (const path of CANARIES) writeFileSync(join(outside, path), CANARY);
  const paths = ["", "b", "b/b", ...CANARIES].map((path) => join(outside, path));
  // An access time before the modification time is renewed by the next read, mount(8) relatime.
  for (const path of paths) utimesSync(path, new Date(0), new Date());
  const before = paths.map((path) => stateOf(path));

  const store = openStore(root);
  const child = spawn(process.execPath, ["-e", SWAPPER, root, outside, ...SWAPPED], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  let swaps = 0;
  const begun = new Promise<void>((resolve, reject) => {
    child.once("error", reject);
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      swaps = Number(text.trim().split("\n").at(-1));
      resolve();
    });
  });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  await begun;

  const escapes: string[] = [];
  let done = 0;
  for (let index = 0; index < operations; index += 1) {
    try {
      const shown = await operate(store, index);
      if (shown !== undefined) escapes.push(shown);
      done += 1;
    } catch (error) {
      if (!isRefusal(error)) throw error;
    }
  }
  child.stdin.end();
  await ended;
  store.close();

  const after = paths.map((path) => stateOf(path));
  for (const [index, path] of paths.entries())
    if (before[index] !== after[index]) escapes.push(`${path} was changed or read`);
  const names = readdirSync(outside, { recursive: true, encoding: "utf8" });
  if (names.sort().join() !== [...CANARIES, "b", "b/b"].sort().join()) escapes.push(`outside has ${names.join()}`);
  for (const path of CANARIES) {
    const isWhole = names.includes(path) && readFileSync(join(outside, path), "utf8") === CANARY;
    if (!isWhole) escapes.push(`${path} was written`);
  }
  const isReadingSeen = paths.every((path, index) => stateOf(path) !== after[index]);
  return { operations, done, refused: operations - done, swaps, escapes, isReadingSeen };
}

/** Runs one of seven operations; returns what it exposed of the outside. */
async function operate(store: Store, index: number): Promise<string | undefined> {
  const signal = new AbortController().signal;
  const ignore = (): void => undefined;
  switch (index % 7) {
    case 0: {
      const { files } = await store.list("images", { maxEntries: 1000, maxDepth: 8 }, signal);
      return sizesOf(files).includes(CANARY.length) ? `operation ${index} listed a canary` : undefined;
    }
    case 1: {
      const { files } = await store.list("images/a/b", { maxEntries: 1000, maxDepth: 8 }, signal);
      return sizesOf(files).includes(CANARY.length) ? `operation ${index} listed a canary` : undefined;
    }
    case 2: {
      const file = store.open("images/a/b/secret");
      try {
        return readFileSync(file.fd, "utf8") === CANARY ? `operation ${index} read a canary` : undefined;
      } finally {
        file.close();
      }
    }
    case 3:
      await store.mkdir(`images/a/b/made-${index}/in`);
      return undefined;
    case 4: {
      const part = store.openPart("images/a/b/secret", `id-${index}`, 0);
      try {
        writeSync(part.fd, "written");
        await part.publish();
      } finally {
        part.discard();
      }
      return undefined;
    }
    case 5:
      await store.remove("images/a/b/secret", signal, ignore);
      return undefined;
    default:
      await store.remove(index % 2 === 0 ? "images/a/b" : "images/a", signal, ignore);
      return undefined;
  }
}

const sizesOf = (files: readonly DataStoreEntry[]): readonly number[] =>
  files.flatMap(({ type, bytes, files = [] }) => (type === "directory" ? sizesOf(files) : [bytes]));

const REFUSALS = new Set(["not-found", "forbidden-path", "not-a-directory", "not-a-file", "exists", "in-use"]);

const isRefusal = (error: unknown): boolean =>
  error instanceof Error && "code" in error && REFUSALS.has(String(error.code));

function stateOf(path: string): string {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return "gone";
  const { ino, mode, nlink, size, uid, mtimeMs, atimeMs, ctimeMs } = stat;
  return [ino, mode, nlink, size, uid, mtimeMs, atimeMs, ctimeMs].join(" ");
}
