import { execFileSync } from "node:child_process";
import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { openStore } from "../../../../src/host/data-store/open-store.ts";
import type { Store, StoreOptions } from "../../../../src/host/data-store/store.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const ID = "11111111-2222-4333-8444-555555555555";
const PART = `.holdfast-${ID}.part`;

function open(options: StoreOptions = {}): { readonly root: string; readonly store: Store; readonly outside: string } {
  const root = join(tempDir(), "store");
  const store = openStore(root, options);
  onTestFinished(() => store.close());
  const outside = tempDir();
  writeFileSync(join(outside, "secret"), "secret");
  return { root, store, outside };
}

const codeOf = (work: () => unknown): unknown => {
  try {
    work();
  } catch (error) {
    return error instanceof Error && "code" in error ? error.code : error;
  }
  return "done";
};

describe("a file is opened for reading", () => {
  test("with its size and its names", () => {
    const { root, store } = open();
    writeFileSync(join(root, "images/a.img"), "12345");
    const file = store.open("/images//a.img");
    expect(file).toMatchObject({ bytes: 5, parts: ["images", "a.img"] });
    expect(readFileSync(file.fd, "utf8")).toBe("12345");
    file.close();
    file.close();
  });

  test("only when it is a regular file with one name, not through a link", async () => {
    const { root, store, outside } = open();
    symlinkSync(outside, join(root, "images/dir"));
    symlinkSync(join(outside, "secret"), join(root, "images/link"));
    symlinkSync("link", join(root, "images/link-to-link"));
    linkSync(join(outside, "secret"), join(root, "images/hard"));
    for (const args of [
      ["fifo", "p"],
      ["null", "c", "1", "3"],
      ["disk", "b", "7", "99"],
    ]) {
      execFileSync("mknod", [join(root, "images", args[0] ?? ""), ...args.slice(1)]);
    }
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(join(root, "images/socket"), resolve));
    const paths = [
      "dir/secret",
      "dir",
      "link",
      "link/x",
      "link-to-link",
      "hard",
      "fifo",
      "null",
      "disk",
      "socket",
      "x",
    ];
    const codes = paths.map((path) => codeOf(() => store.open(`images/${path}`)));
    await new Promise((resolve) => server.close(resolve));
    expect(Object.fromEntries(paths.map((path, index) => [path, codes[index]]))).toEqual({
      "dir/secret": "forbidden-path",
      dir: "forbidden-path",
      link: "forbidden-path",
      "link/x": "forbidden-path",
      "link-to-link": "forbidden-path",
      hard: "forbidden-path",
      fifo: "not-a-file",
      null: "not-a-file",
      disk: "not-a-file",
      socket: "not-a-file",
      x: "not-found",
    });
    expect(codeOf(() => store.open("/"))).toBe("not-a-file");
    expect(codeOf(() => store.open("images"))).toBe("not-a-file");
    expect(codeOf(() => store.open(`images/${PART}`))).toBe("bad-path");
  });
});

describe("a partial file", () => {
  test("becomes the file in one step, with its directories created, and leaves nothing", async () => {
    const { root, store } = open();
    const before = process.umask(0o277);
    let part;
    try {
      part = store.openPart("images/a/b/c.img", ID, 0);
    } finally {
      process.umask(before);
    }
    writeSync(part.fd, "new");
    expect(readdirSync(join(root, "images/a/b"))).toEqual([PART]);
    await part.publish();
    expect(readdirSync(join(root, "images/a/b"))).toEqual(["c.img"]);
    expect(readFileSync(join(root, "images/a/b/c.img"), "utf8")).toBe("new");
    expect(statSync(join(root, "images/a/b/c.img")).mode & 0o7777).toBe(0o600);
    for (const path of ["images/a", "images/a/b"]) expect(statSync(join(root, path)).mode & 0o7777).toBe(0o700);
    part.discard();
    part.keep();
    await expect(part.publish()).rejects.toMatchObject({ code: "storage-failed" });
    expect(existsSync(join(root, "images/a/b/c.img"))).toBe(true);
  });

  test("replaces a file whose old content its readers keep, and not the other name of one", async () => {
    const { root, store, outside } = open();
    linkSync(join(outside, "secret"), join(root, "images/a"));
    const part = store.openPart("images/a", ID, 0);
    writeSync(part.fd, "new");
    await part.publish();
    expect(readFileSync(join(outside, "secret"), "utf8")).toBe("secret");
    expect(readFileSync(join(root, "images/a"), "utf8")).toBe("new");
  });

  test("is continued from its stored bytes, and removed when abandoned", async () => {
    const { root, store } = open();
    const first = store.openPart("images/a", ID, 0);
    writeSync(first.fd, "123456");
    first.keep();
    const second = store.openPart("images/a", ID, 4);
    expect(second.bytes).toBe(4);
    expect(readFileSync(join(root, "images", PART), "utf8")).toBe("1234");
    writeSync(second.fd, "x", 4);
    second.keep();
    const third = store.openPart("images/a", ID, 100);
    expect(third.bytes).toBe(5);
    third.discard();
    expect(readdirSync(join(root, "images"))).toEqual([]);
    store.openPart("images/a", ID, 0).keep();
    await store.dropPart("images/a", ID);
    await store.dropPart("images/a", ID);
    await store.dropPart("images/none/a", ID);
    expect(readdirSync(join(root, "images"))).toEqual([]);
  });

  test("is not opened on a link, a second name or a foreign file, or for what is not a file", () => {
    const { root, store, outside } = open();
    const at = join(root, "images", PART);
    const tried: unknown[] = [];
    const attempt = (): void => {
      tried.push(codeOf(() => store.openPart("images/a", ID, 100)));
      rmSync(at, { recursive: true });
    };
    symlinkSync(join(outside, "secret"), at);
    attempt();
    linkSync(join(outside, "secret"), at);
    attempt();
    execFileSync("mkfifo", [at]);
    attempt();
    mkdirSync(at);
    attempt();
    writeFileSync(at, "");
    execFileSync("chown", ["1234", at]);
    attempt();
    expect(tried).toEqual(["forbidden-path", "forbidden-path", "not-a-file", "not-a-file", "forbidden-path"]);
    symlinkSync(outside, join(root, "images/l"));
    expect(codeOf(() => store.openPart("images/l/a", ID, 0))).toBe("forbidden-path");
    expect(codeOf(() => store.openPart("images/l", ID, 0))).toBe("forbidden-path");
    expect(codeOf(() => store.openPart("images", ID, 0))).toBe("not-a-file");
    expect(codeOf(() => store.openPart("/", ID, 0))).toBe("not-a-file");
    expect(codeOf(() => store.openPart("images/a\nb", ID, 0))).toBe("bad-path");
    expect(codeOf(() => store.openPart("images/a", "../x", 0))).toBe("bad-path");
    expect(readFileSync(join(outside, "secret"), "utf8")).toBe("secret");
    expect(readdirSync(outside)).toEqual(["secret"]);
  });

  test("is not published on something new, or in a missing directory", async () => {
    const { root, store } = open();
    const part = store.openPart("images/d/a", ID, 0);
    mkdirSync(join(root, "images/d/a"));
    await expect(part.publish()).rejects.toMatchObject({ code: "not-a-file" });
    rmSync(join(root, "images/d/a"), { recursive: true });
    symlinkSync("x", join(root, "images/d/a"));
    await expect(part.publish()).rejects.toMatchObject({ code: "forbidden-path" });
    rmSync(join(root, "images/d/a"));
    renameSync(join(root, "images/d"), join(root, "images/e"));
    await expect(part.publish()).rejects.toMatchObject({ code: "not-found" });
    mkdirSync(join(root, "images/d"));
    await expect(part.publish()).rejects.toMatchObject({ code: "not-found" });
    rmSync(join(root, "images/d"), { recursive: true });
    renameSync(join(root, "images/e"), join(root, "images/d"));
    renameSync(join(root, "images/d", PART), join(root, "images/d/other"));
    writeFileSync(join(root, "images/d", PART), "planted");
    await expect(part.publish()).rejects.toMatchObject({ code: "not-found" });
    part.discard();
    expect(readdirSync(join(root, "images/d")).sort()).toEqual([PART, "other"].sort());
  });

  test("that is abandoned while it is published is not published, or is as a whole", async () => {
    const { root, store } = open();
    const part = store.openPart("images/a", ID, 0);
    writeSync(part.fd, "new");
    const publishing = part.publish();
    part.discard();
    await expect(publishing).rejects.toMatchObject({ code: "storage-failed" });
    expect(readdirSync(join(root, "images"))).toEqual([]);
  });

  test("is refused for what is in use, before the start and before it is published", async () => {
    let used = "images/a";
    const { root, store } = open({ isInUse: (parts) => (parts.join("/") === used ? "the volume db" : undefined) });
    expect(() => store.openPart("/images/a", ID, 0)).toThrow(/"images\/a" is in use: the volume db/);
    expect(readdirSync(join(root, "images"))).toEqual([]);
    const part = store.openPart("images/b", ID, 0);
    used = "images/b";
    await expect(part.publish()).rejects.toMatchObject({ code: "in-use" });
    used = "";
    await part.publish();
  });

  test("of a task that starts during a cleanup stays", async () => {
    const { root, store } = open();
    const known = new Set<string>();
    const sweeping = store.sweepParts(known, new AbortController().signal);
    known.add(ID);
    store.openPart("images/a/a", ID, 0).keep();
    expect(await sweeping).toBe(0);
    expect(readdirSync(join(root, "images/a"))).toEqual([PART]);
  });

  test("is recognized by its mark, as long as nothing changes it, under any name", async () => {
    const { root, store } = open();
    const part = store.openPart("images/a", ID, 0);
    writeSync(part.fd, "new");
    const mark = await part.mark();
    expect(await store.isPublished("images/a", mark)).toBe(false);
    await part.publish();
    expect(await store.isPublished("images/a", mark)).toBe(true);
    expect(await store.isPublished("images/b", mark)).toBe(false);
    writeFileSync(join(root, "images/a"), "old");
    expect(await store.isPublished("images/a", mark)).toBe(false);
  });

  test("without a task is deleted", async () => {
    const { root, store } = open();
    store.openPart("images/a/a", ID, 0).keep();
    store.openPart("images/a/b", "2", 0).keep();
    store.openPart("c", "3", 0).keep();
    mkdirSync(join(root, "images/.holdfast-4.part"));
    writeFileSync(join(root, "images/.holdfast-5xpart"), "");
    expect(await store.sweepParts(new Set([ID]), new AbortController().signal)).toBe(2);
    expect(readdirSync(root, { recursive: true, encoding: "utf8" }).sort()).toEqual(
      [
        "images",
        "images/.holdfast-4.part",
        "images/.holdfast-5xpart",
        "images/a",
        `images/a/${PART}`,
        "volumes",
      ].sort(),
    );
  });
});
