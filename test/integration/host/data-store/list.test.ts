import { execFileSync } from "node:child_process";
import { chmodSync, linkSync, mkdirSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { sizeText } from "../../../../src/host/data-store/list.ts";
import { openStore } from "../../../../src/host/data-store/open-store.ts";
import type { Store } from "../../../../src/host/data-store/store.ts";
import type { DataStoreEntry } from "../../../../src/protocol/triggers/data-store.ts";
import { DataStoreListing } from "../../../../src/protocol/triggers/data-store.ts";
import { memoryDir, tempDir } from "../../../support/temp-dir.ts";

const caps = { maxEntries: 10_000, maxDepth: 16 };
const signal = new AbortController().signal;

function open(dir = tempDir()): { readonly root: string; readonly store: Store } {
  const root = join(dir, "store");
  const store = openStore(root);
  onTestFinished(() => store.close());
  return { root, store };
}

/** Returns paths and types of all entries, a directory before its contents. */
function flat(files: readonly DataStoreEntry[]): readonly string[] {
  return files.flatMap(({ path, type, files = [] }) => [`${type} ${path}`, ...flat(files)]);
}

describe("a listing", () => {
  test("has every file with its size, sorted by name, or the contents of a part of the tree", async () => {
    const { root, store } = open();
    mkdirSync(join(root, "images/iso"));
    writeFileSync(join(root, "images/iso/b.iso"), "12345");
    writeFileSync(join(root, "images/iso/a.iso"), "");
    truncateSync(join(root, "images/iso/a.iso"), 9_400_000_000);
    expect(await store.list(undefined, caps, signal)).toEqual({
      files: [
        {
          name: "images",
          path: "images",
          type: "directory",
          size: "9.4 GB",
          bytes: 9_400_000_005,
          files: [
            {
              name: "iso",
              path: "images/iso",
              type: "directory",
              size: "9.4 GB",
              bytes: 9_400_000_005,
              files: [
                { name: "a.iso", path: "images/iso/a.iso", type: "file", size: "9.4 GB", bytes: 9_400_000_000 },
                { name: "b.iso", path: "images/iso/b.iso", type: "file", size: "5 B", bytes: 5 },
              ],
            },
          ],
        },
        { name: "volumes", path: "volumes", type: "directory", size: "0 B", bytes: 0, files: [] },
      ],
    });
    const part = await store.list("/images/iso/", caps, signal);
    expect(flat(part.files)).toEqual(["file images/iso/a.iso", "file images/iso/b.iso"]);
  });

  test("reports what cannot be listed", async () => {
    const { root, store } = open();
    writeFileSync(join(root, "f"), "");
    symlinkSync("images", join(root, "l"));
    await expect(store.list("none", caps, signal)).rejects.toMatchObject({ code: "not-found" });
    await expect(store.list("f", caps, signal)).rejects.toMatchObject({ code: "not-a-directory" });
    await expect(store.list("f/x", caps, signal)).rejects.toMatchObject({ code: "not-a-directory" });
    await expect(store.list("l", caps, signal)).rejects.toMatchObject({ code: "forbidden-path" });
    await expect(store.list("l/x", caps, signal)).rejects.toMatchObject({ code: "forbidden-path" });
    await expect(store.list("volumes/.mounts", caps, signal)).rejects.toMatchObject({ code: "forbidden-path" });
    await expect(store.list("..", caps, signal)).rejects.toMatchObject({ code: "bad-path" });
  });

  test("skips Holdfast's own files, and follows no link", async () => {
    const { root, store } = open();
    const outside = tempDir();
    writeFileSync(join(outside, "secret"), "");
    for (const path of ["volumes/.quarantine/x", "volumes/db/.mounts", "images/.x"]) {
      mkdirSync(join(root, path), { recursive: true });
    }
    writeFileSync(join(root, "images/.holdfast-1.part"), "");
    symlinkSync(outside, join(root, "images/link"));
    symlinkSync(join(outside, "secret"), join(root, "images/link-to-file"));
    execFileSync("mkfifo", [join(root, "images/fifo")]);
    expect(flat((await store.list("/", caps, signal)).files)).toEqual([
      "directory images",
      "directory images/.x",
      "other images/fifo",
      "other images/link",
      "other images/link-to-file",
      "directory volumes",
      "directory volumes/db",
      "directory volumes/db/.mounts",
    ]);
  });

  test("carries names of any bytes in its JSON, and marks those that are not text", async () => {
    const { root, store } = open();
    const latin1 = Buffer.concat([Buffer.from(`${root}/images/caf`), Buffer.from([0xe9])]);
    mkdirSync(latin1);
    writeFileSync(Buffer.concat([latin1, Buffer.from("/in")]), "123");
    writeFileSync(join(root, "images/a\nb\u001b[2J"), "12");
    const { files } = await store.list("images", caps, signal);
    expect(flat(files)).toEqual([
      "file images/a\nb\u001b[2J",
      "directory images/caf\ufffd",
      "file images/caf\ufffd/in",
    ]);
    expect(DataStoreListing.parse(JSON.parse(JSON.stringify({ files })))).toEqual({ files });
    await expect(store.list("images/caf\ufffd", caps, signal)).rejects.toMatchObject({ code: "not-found" });
    store.open("images/a\nb\u001b[2J").close();
  });

  test("ends at its limits with a marker, and lists the upper levels first", async () => {
    const { root, store } = open();
    mkdirSync(join(root, "images/a/b/c/d"), { recursive: true });
    const deep = await store.list("/", { ...caps, maxDepth: 3 }, signal);
    expect(flat(deep.files)).toEqual([
      "directory images",
      "directory images/a",
      "directory images/a/b",
      "truncated images/a/b",
      "directory volumes",
    ]);
    for (let index = 0; index < 10; index += 1) writeFileSync(join(root, `images/a/${index}`), "");
    const few = await store.list("/", { ...caps, maxEntries: 6 }, signal);
    const paths = flat(few.files);
    expect(paths).toHaveLength(6 + 1 + Number(paths.includes("directory images/a/b")));
    expect(paths).toEqual(expect.arrayContaining(["directory images", "directory volumes", "truncated images/a"]));
    expect(few.files[0]?.files?.[0]?.files?.at(-1)).toEqual({
      name: "…",
      path: "images/a",
      type: "truncated",
      size: "0 B",
      bytes: 0,
    });
  });

  test("of a directory of a hundred thousand ends at its limit, while others proceed", async () => {
    const { root, store } = open(memoryDir());
    execFileSync("sh", ["-c", "seq 100000 | xargs touch"], { cwd: join(root, "images") });
    const state = { isOver: false };
    let turns = 0;
    const listed = store.list("/", caps, signal).finally(() => {
      state.isOver = true;
    });
    // At least one for each piece.
    for (; !state.isOver && turns < 39; turns += 1) await nextTurn();
    const { files } = await listed;
    expect(files.map(({ name, files }) => [name, files?.length])).toEqual([
      ["images", 9999],
      ["volumes", 1],
    ]);
    expect(turns).toBe(39);
    const aborted = new AbortController();
    const given = store.list("/", { ...caps, maxEntries: 100_000 }, aborted.signal);
    aborted.abort(new Error("enough"));
    await expect(given).rejects.toThrow("enough");
  });

  test("distinguishes an unreadable directory from an empty one", () => {
    const { root } = open();
    mkdirSync(join(root, "images/closed"));
    chmodSync(join(root, "images/closed"), 0o700);
    execFileSync("chown", ["1234", join(root, "images/closed")]);
    const script = `
      const { openStore } = await import(${JSON.stringify(join(process.cwd(), "src/host/data-store/open-store.ts"))});
      const store = openStore(${JSON.stringify(root)});
      const signal = new AbortController().signal;
      const { files } = await store.list("images", { maxEntries: 10, maxDepth: 9 }, signal);
      const failed = await store.list("images/closed", { maxEntries: 10, maxDepth: 9 }, signal).catch(({ code }) => code);
      console.log(JSON.stringify([files[0].files[0].type, failed]));`;
    const output = execFileSync(
      "setpriv",
      ["--bounding-set=-all,+chown", "--", process.execPath, "--input-type=module", "-e", script],
      { encoding: "utf8" },
    );
    expect(JSON.parse(output)).toEqual(["truncated", "forbidden-path"]);
  });

  test("has all that stays while files come and go", async () => {
    const { root, store } = open();
    mkdirSync(join(root, "images/stays"));
    linkSync(writeAt(join(root, "images/stays/a")), join(root, "images/stays/b"));
    const state = { isOver: false };
    const changing = (async () => {
      for (let index = 0; !state.isOver; index += 1) {
        mkdirSync(join(root, `images/gone-${index}/x`), { recursive: true });
        await nextTurn();
        rmSync(join(root, `images/gone-${index}`), { recursive: true });
      }
    })();
    for (let round = 0; round < 50; round += 1) {
      const { files } = await store.list("images", caps, signal);
      expect(flat(files)).toEqual(expect.arrayContaining(["file images/stays/a", "file images/stays/b"]));
    }
    state.isOver = true;
    await changing;
  });
});

test.each([
  [0, "0 B"],
  [999, "999 B"],
  [1000, "1.0 kB"],
  [999_949, "999.9 kB"],
  [999_950, "1.0 MB"],
  [9_400_000_000, "9.4 GB"],
  [2.5e18, "2500.0 PB"],
])("%d bytes are %s", (bytes, text) => {
  expect(sizeText(bytes)).toBe(text);
});

function writeAt(path: string): string {
  writeFileSync(path, "");
  return path;
}
