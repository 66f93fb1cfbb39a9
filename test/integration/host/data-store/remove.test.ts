import { execFile, execFileSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import { openStore } from "../../../../src/host/data-store/open-store.ts";
import type { Store, StoreOptions } from "../../../../src/host/data-store/store.ts";
import { TESTS_ALL } from "../../../support/sample.ts";
import { memoryDir, tempDir } from "../../../support/temp-dir.ts";

const MANY = TESTS_ALL ? 100_000 : 30_000;
const signal = new AbortController().signal;
const ignore = (): void => undefined;

function open(options: StoreOptions = {}, dir = tempDir()): { readonly root: string; readonly store: Store } {
  const root = join(dir, "store");
  const store = openStore(root, options);
  onTestFinished(() => store.close());
  return { root, store };
}

/** Makes a chain of directories longer than any path may be. */
function makeDeep(top: string, levels: number): void {
  const script = `
    const { mkdirSync, writeFileSync } = require("node:fs");
    process.chdir(process.argv[1]);
    for (let level = 0; level < Number(process.argv[2]); level += 1) {
      mkdirSync("d".repeat(100));
      writeFileSync("f", "");
      process.chdir("d".repeat(100));
    }`;
  execFileSync(process.execPath, ["-e", script, top, String(levels)]);
}

/** Runs the body of an async function on a store, with the store's capabilities, and returns its result. */
async function inProcess(command: readonly string[], root: string, body: string): Promise<unknown> {
  const script = `
    const { openStore } = await import(${JSON.stringify(join(process.cwd(), "src/host/data-store/open-store.ts"))});
    const { execFileSync } = await import("node:child_process");
    const { readdirSync } = await import("node:fs");
    const root = ${JSON.stringify(root)};
    const signal = new AbortController().signal;
    const codeOf = (error) => error.code + ": " + error.message;
    const run = async () => {${body}};
    console.log(JSON.stringify(await run()));`;
  const [file = "", ...args] = command;
  const output = await promisify(execFile)(file, [...args, process.execPath, "--input-type=module", "-e", script]);
  return JSON.parse(output.stdout) as unknown;
}

describe("a path", () => {
  test("is removed with all its contents, links as links, and reports the amount", async () => {
    const { root, store } = open();
    const outside = tempDir();
    writeFileSync(join(outside, "kept"), "kept");
    mkdirSync(join(root, "images/a/b"), { recursive: true });
    writeFileSync(join(root, "images/a/f"), "");
    symlinkSync(outside, join(root, "images/a/dir"));
    symlinkSync(join(outside, "kept"), join(root, "images/a/b/file"));
    linkSync(join(outside, "kept"), join(root, "images/a/b/hard"));
    execFileSync("mkfifo", [join(root, "images/a/fifo")]);
    let removed = 0;
    await store.remove("/images/a", signal, (entries) => {
      removed = entries;
    });
    expect(removed).toBe(7);
    expect(readdirSync(join(root, "images"))).toEqual([]);
    symlinkSync(outside, join(root, "images/l"));
    await expect(store.remove("images/l/kept", signal, ignore)).rejects.toMatchObject({ code: "forbidden-path" });
    await store.remove("images/l", signal, ignore);
    expect(readdirSync(join(root, "images"))).toEqual([]);
    await expect(store.remove("images/l", signal, ignore)).rejects.toMatchObject({ code: "not-found" });
    await expect(store.remove("images/l/x", signal, ignore)).rejects.toMatchObject({ code: "not-found" });
    expect(readFileSync(join(outside, "kept"), "utf8")).toBe("kept");
  });

  test("is removed with any bytes in its names", async () => {
    const { root, store } = open();
    const inside = (...names: readonly (string | Buffer)[]): Buffer =>
      Buffer.concat(names.flatMap((name) => [Buffer.from("/"), Buffer.from(name)])).subarray(1);
    const latin1 = Buffer.from([0x63, 0xe9]);
    mkdirSync(inside(`${root}/images/t`, latin1, "a\nb", latin1), { recursive: true });
    writeFileSync(inside(`${root}/images/t`, latin1, "a\nb", latin1, Buffer.from([0xff])), "");
    writeFileSync(inside(`${root}/images/t`, "\u001b[2J"), "");
    writeFileSync(join(root, "images/\u001b[2J"), "");
    await store.remove("images/t", signal, ignore);
    await store.remove("images/\u001b[2J", signal, ignore);
    expect(readdirSync(join(root, "images"))).toEqual([]);
  });

  test("is removed at any depth, with few descriptors", async () => {
    const { root } = open();
    mkdirSync(join(root, "images/deep"));
    makeDeep(join(root, "images/deep"), 400);
    const body = `
      const store = openStore(root);
      let removed = 0;
      await store.remove("images/deep", signal, (entries) => { removed = entries; });
      return removed;`;
    expect(await inProcess(["sh", "-c", 'ulimit -n 300 && exec "$0" "$@"'], root, body)).toBe(801);
    expect(readdirSync(join(root, "images"))).toEqual([]);
  });

  test("of many files is removed piece by piece, and can be cancelled in between", async () => {
    const { root, store } = open({}, memoryDir());
    mkdirSync(join(root, "images/many"));
    execFileSync("sh", ["-c", `seq ${MANY} | xargs touch`], { cwd: join(root, "images/many") });
    const stop = new AbortController();
    const reported: number[] = [];
    const removing = store.remove("images/many", stop.signal, (entries) => {
      reported.push(entries);
      if (entries > 5000) stop.abort(new Error("enough"));
    });
    await expect(removing).rejects.toThrow("enough");
    const left = readdirSync(join(root, "images/many")).length;
    expect(left).toBe(MANY - (reported.at(-1) ?? 0));
    expect(reported.length).toBeGreaterThan(10);
    expect(left).toBeGreaterThan(MANY / 2);
    await store.remove("images/many", signal, ignore);
    expect(existsSync(join(root, "images/many"))).toBe(false);
  });
});

describe("protected from removal", () => {
  test("is the root with its two directories, the agent's own files, and what is in use", async () => {
    const { root, store } = open({
      isInUse: (parts) => (`volumes/db/x`.startsWith(parts.join("/")) ? "the volume db is mounted" : undefined),
    });
    mkdirSync(join(root, "volumes/db/x"), { recursive: true });
    mkdirSync(join(root, "volumes/.mounts/db"), { recursive: true });
    for (const path of ["/", ".", "images", "/volumes/", "volumes/.mounts", "volumes/.mounts/db"]) {
      await expect(store.remove(path, signal, ignore)).rejects.toMatchObject({ code: "forbidden-path" });
    }
    await expect(store.remove("volumes/..", signal, ignore)).rejects.toMatchObject({ code: "bad-path" });
    await expect(store.remove("volumes/db", signal, ignore)).rejects.toThrow(/in use: the volume db is mounted/);
    expect(existsSync(join(root, "volumes/db/x"))).toBe(true);
    expect(existsSync(join(root, "volumes/.mounts/db"))).toBe(true);
  });

  test("is a directory with a mount in it, as a whole", async () => {
    const root = join(tempDir(), "a store");
    const body = `
      const store = openStore(root);
      await store.mkdir("images/a/with space");
      await store.mkdir("images/a/b");
      await store.mkdir("images/c");
      execFileSync("mount", ["-t", "tmpfs", "tmpfs", root + "/images/a/with space"]);
      execFileSync("mount", ["--bind", root + "/images/c", root + "/images/a/b"]);
      execFileSync("touch", [root + "/images/c/kept"]);
      const tell = async (path) => store.remove(path, signal, () => undefined).catch(codeOf);
      const said = [await tell("images/a"), await tell("images/a/b")];
      execFileSync("umount", [root + "/images/a/with space"]);
      said.push(await tell("images/a"));
      execFileSync("umount", [root + "/images/a/b"]);
      return [...said, readdirSync(root + "/images/c"), (await tell("images/a")) ?? "removed"];`;
    const mounted = (path: string): string => `in-use: "${path}" cannot be removed: a file system is mounted there`;
    expect(await inProcess(["unshare", "-m"], root, body)).toEqual([
      mounted("images/a"),
      mounted("images/a/b"),
      mounted("images/a"),
      ["kept"],
      "removed",
    ]);
  });
});

test("foreign files are removed by a root limited to CAP_CHOWN, and their directories keep their owner", async () => {
  const { root } = open();
  for (const path of ["volumes/db/secret/deep", "volumes/log"]) mkdirSync(join(root, path), { recursive: true });
  const files = ["volumes/db/secret/deep/f", "volumes/log/a", "volumes/log/b"];
  for (const path of files) writeFileSync(join(root, path), "");
  chmodSync(join(root, "volumes/db/secret"), 0o000);
  chmodSync(join(root, "volumes/log"), 0o2555);
  for (const path of [...files, "volumes/db/secret/deep", "volumes/db/secret", "volumes/db", "volumes/log"]) {
    chownSync(join(root, path), 1234, 1235);
  }
  chmodSync(join(root, "volumes/log"), 0o2555); // chown(2) may have taken the bit
  const body = `
    const store = openStore(root);
    for (const path of ["volumes/db", "volumes/log/a"]) await store.remove(path, signal, () => undefined);
    return "removed";`;
  expect(await inProcess(["setpriv", "--bounding-set=-all,+chown", "--"], root, body)).toBe("removed");
  expect(readdirSync(join(root, "volumes"))).toEqual(["log"]);
  expect(readdirSync(join(root, "volumes/log"))).toEqual(["b"]);
  const { uid, gid, mode } = statSync(join(root, "volumes/log"));
  expect({ uid, gid, mode: mode & 0o777 }).toEqual({ uid: 1234, gid: 1235, mode: 0o555 });
});
