import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { openStore } from "../../../../src/host/data-store/open-store.ts";
import type { Store, StoreOptions } from "../../../../src/host/data-store/store.ts";
import { onSmallDisk } from "../../../support/machine/small-disk.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const signal = new AbortController().signal;
const caps = { maxEntries: 100, maxDepth: 16 };

function open(options: StoreOptions = {}): { readonly root: string; readonly store: Store } {
  const root = join(tempDir(), "up", "store");
  const store = openStore(root, options);
  onTestFinished(() => store.close());
  return { root, store };
}

const modeOf = (path: string): number => statSync(path).mode & 0o7777;

describe("the root", () => {
  test("is created for its owner only, with its two directories", () => {
    const before = process.umask(0);
    let root;
    try {
      ({ root } = open());
    } finally {
      process.umask(before);
    }
    expect(readdirSync(root).sort()).toEqual(["images", "volumes"]);
    for (const path of ["", "images", "volumes"]) expect(modeOf(join(root, path))).toBe(0o700);
  });

  test("is used unchanged, with its contents", async () => {
    const root = tempDir();
    writeFileSync(join(root, "images"), "");
    const store = openStore(root);
    expect((await store.list("/", caps, signal)).files.map(({ type }) => type)).toEqual(["file", "directory"]);
    store.close();
    await expect(store.list("/", caps, signal)).rejects.toMatchObject({ code: "storage-failed" });
  });

  test("cannot be a file", () => {
    const root = join(tempDir(), "file");
    writeFileSync(root, "");
    expect(() => openStore(root)).toThrow(expect.objectContaining({ code: "storage-failed" }));
    expect(() => openStore(join(root, "x"))).toThrow(expect.objectContaining({ code: "storage-failed" }));
  });

  test("is opened again when another directory has replaced it, and created again when it is missing", async () => {
    const { root, store } = open();
    renameSync(root, `${root}.old`);
    await store.mkdir("images/a");
    expect(existsSync(join(root, "images/a"))).toBe(true);
    expect(existsSync(join(`${root}.old`, "images/a"))).toBe(false);
    rmSync(root, { recursive: true });
    renameSync(`${root}.old`, root);
    await store.mkdir("images/b");
    expect(readdirSync(join(root, "images"))).toEqual(["b"]);
  });
});

describe("a directory", () => {
  test("is created for its owner only, with its parents, under any umask", async () => {
    const { root, store } = open();
    const before = process.umask(0o777);
    try {
      await store.mkdir("/images/x/y//z/");
    } finally {
      process.umask(before);
    }
    for (const path of ["images/x", "images/x/y", "images/x/y/z"]) expect(modeOf(join(root, path))).toBe(0o700);
  });

  test("is not created on something else, through a link or a file, or with an invalid name", async () => {
    const { root, store } = open();
    const outside = tempDir();
    symlinkSync(outside, join(root, "images/l"));
    symlinkSync(join(outside, "new"), join(root, "images/dangling"));
    writeFileSync(join(root, "f"), "");
    const codes = await Promise.all(
      ["/", "images", "f", "f/x", "images/l", "images/l/x", "images/dangling", "images/dangling/x", "a\nb", "../x"].map(
        async (path) => store.mkdir(path).catch(({ code }: { code: string }) => code),
      ),
    );
    expect(codes).toEqual([
      "exists",
      "exists",
      "exists",
      "not-a-directory",
      "exists",
      "forbidden-path",
      "exists",
      "forbidden-path",
      "bad-path",
      "bad-path",
    ]);
    expect(readdirSync(outside)).toEqual([]);
  });
});

describe("the space", () => {
  test("is that of the file system", async () => {
    const { freeBytes, totalBytes } = await open().store.space();
    expect(freeBytes).toBeGreaterThan(0);
    expect(totalBytes).toBeGreaterThan(freeBytes);
  });

  test("in use is what files take on the disk, once for all their names, and is counted at intervals", async () => {
    let elapsed = 0;
    const clock = {
      now: () => elapsed,
      elapsed: () => elapsed,
      sinceBoot: () => elapsed,
      sleep: async () => undefined,
      after: () => () => undefined,
    };
    const { root, store } = open({ clock, countEveryMs: 1000 });
    const empty = await store.used(signal);
    mkdirSync(join(root, "volumes/.encrypted"));
    writeFileSync(join(root, "volumes/.encrypted/db.img"), Buffer.alloc(1_000_000, 1));
    linkSync(join(root, "volumes/.encrypted/db.img"), join(root, "images/same"));
    elapsed = 999;
    expect(await store.used(signal)).toBe(empty);
    elapsed = 1000;
    const used = await store.used(signal);
    expect(used - empty).toBeGreaterThanOrEqual(1_000_000);
    expect(used - empty).toBeLessThan(1_100_000);
    elapsed = 3000;
    const given = new AbortController();
    const counting = store.used(given.signal);
    given.abort(new Error("enough"));
    await expect(counting).rejects.toThrow("enough");
  });
});

test("reports a full or read-only disk as such, which can still be listed and cleared", async () => {
  const outcome = await onSmallDisk(`
    const { openStore } = await import(${JSON.stringify(join(process.cwd(), "src/host/data-store/open-store.ts"))});
    const { storeFailure } = await import(${JSON.stringify(join(process.cwd(), "src/host/data-store/failures.ts"))});
    const { rmSync, writeFileSync, writeSync } = await import("node:fs");
    const signal = new AbortController().signal;
    const caps = { maxEntries: 10, maxDepth: 9 };
    const codeOf = (error) => error.code;
    const names = async (store) => (await store.list("images", caps, signal)).files.map(({ name }) => name);
    const store = openStore(root + "/store");
    const part = store.openPart("images/a", "1", 0);
    const said = [];
    try {
      for (;;) writeSync(part.fd, Buffer.alloc(4096, 1));
    } catch (error) {
      said.push(storeFailure(error, "write").code);
    }
    const few = root + "/store/images/few";
    await store.mkdir("images/few");
    execFileSync("mount", ["-t", "tmpfs", "-o", "nr_inodes=3", "tmpfs", few]);
    await store.mkdir("images/few/1");
    await store.mkdir("images/few/2");
    said.push(await store.mkdir("images/few/3").catch(codeOf));
    try {
      store.openPart("images/few/4", "2", 0);
    } catch (error) {
      said.push(error.code);
    }
    execFileSync("umount", [few]);
    const fresh = openStore(root + "/store");
    fresh.close();
    part.discard();
    await store.remove("images/few", signal, () => undefined);
    await store.mkdir("images/again");
    store.openPart("images/a", "7", 0).keep();
    makeReadOnly();
    said.push(await store.mkdir("images/x").catch(codeOf));
    said.push(await store.remove("images/again", signal, () => undefined).catch(codeOf));
    try {
      store.openPart("images/c", "9", 0);
    } catch (error) {
      said.push(error.code);
    }
    const second = openStore(root + "/store");
    said.push((await names(second)).includes("again"));
    return said;
  `);
  expect(outcome).toEqual(["disk-full", "disk-full", "disk-full", "read-only", "read-only", "read-only", true]);
});
