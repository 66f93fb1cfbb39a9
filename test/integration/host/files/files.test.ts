import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { HostError } from "../../../../src/errors.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { onSmallDisk } from "../../../support/machine/small-disk.ts";
import { tempDir } from "../../../support/temp-dir.ts";

describe("an atomic write", () => {
  test("creates and replaces a file with its mode, and leaves nothing beside it", async () => {
    const root = tempDir();
    const files = hostFiles(root);
    await files.writeAtomic("/a.json", "one", 0o600);
    await files.writeAtomic("/a.json", "two", 0o600);
    expect(await files.read("/a.json")).toBe("two");
    expect(statSync(join(root, "a.json")).mode & 0o777).toBe(0o600);
    expect(readdirSync(root)).toEqual(["a.json"]);
  });

  test("replaces a symbolic link and never writes through it", async () => {
    const root = tempDir();
    writeFileSync(join(root, "victim"), "untouched");
    symlinkSync(join(root, "victim"), join(root, "a.json"));
    await hostFiles(root).writeAtomic("/a.json", "mine", 0o600);
    expect(readFileSync(join(root, "victim"), "utf8")).toBe("untouched");
    expect(readFileSync(join(root, "a.json"), "utf8")).toBe("mine");
  });

  test("onto a directory fails, names it, and leaves nothing beside it", async () => {
    const root = tempDir();
    mkdirSync(join(root, "a.json", "inner"), { recursive: true });
    const write = hostFiles(root).writeAtomic("/a.json", "x", 0o600);
    await expect(write).rejects.toThrow("/a.json");
    await expect(write).rejects.toBeInstanceOf(HostError);
    expect(readdirSync(root)).toEqual(["a.json"]);
  });

  test("into a missing directory fails", async () => {
    await expect(hostFiles(tempDir()).writeAtomic("/no/a.json", "x", 0o600)).rejects.toMatchObject({
      code: "file-failed",
      details: { path: "/no/a.json" },
    });
  });

  test("beside others to the same file leaves one of them complete", async () => {
    const root = tempDir();
    const files = hostFiles(root);
    const texts = ["a", "b", "c", "d"].map((letter) => letter.repeat(200_000));
    for (let round = 0; round < 5; round += 1) {
      await Promise.all(texts.map((text) => files.writeAtomic("/a.json", text, 0o600)));
      expect(texts).toContain(await files.read("/a.json"));
      expect(readdirSync(root)).toEqual(["a.json"]);
    }
  });

  test("on a full disk keeps the old content; on a read-only one too", async () => {
    const outcome = await onSmallDisk(`
      await files.writeAtomic("/a.json", "old", 0o600);
      const code = (error) => error.code;
      const full = await files.writeAtomic("/a.json", "x".repeat(500_000), 0o600).catch(code);
      const afterFull = [await files.read("/a.json"), await files.list("/")];
      makeReadOnly();
      const readOnly = await files.writeAtomic("/a.json", "new", 0o600).catch(code);
      const moved = await files.move("/a.json", "/b.json").catch(code);
      const removed = await files.remove("/a.json").catch(code);
      return { full, afterFull, readOnly, moved, removed, after: await files.read("/a.json") };
    `);
    expect(outcome).toEqual({
      full: "disk-full",
      afterFull: ["old", ["a.json"]],
      readOnly: "read-only",
      moved: "read-only",
      removed: "read-only",
      after: "old",
    });
  });
});

describe("files", () => {
  test("that are absent read as undefined, list as nothing, and are removed without an error", async () => {
    const files = hostFiles(tempDir());
    expect(await files.read("/no")).toBeUndefined();
    expect(await files.list("/no")).toEqual([]);
    await files.remove("/no");
    await expect(files.move("/no", "/yes")).rejects.toMatchObject({ code: "file-failed" });
    await expect(files.space("/no")).rejects.toBeInstanceOf(HostError);
  });

  test("are moved, removed and listed", async () => {
    const root = tempDir();
    const files = hostFiles(root);
    await files.makeDirectory("/d/e", 0o700);
    expect(statSync(join(root, "d/e")).mode & 0o777).toBe(0o700);
    await files.writeAtomic("/d/a", "1", 0o640);
    await files.move("/d/a", "/d/b");
    expect(await files.list("/d")).toEqual(["b", "e"]);
    await files.remove("/d/b");
    expect(await files.list("/d")).toEqual(["e"]);
  });

  test("left by an interrupted write are deleted, and no others", async () => {
    const root = tempDir();
    const mine = ["a.json", "a.json.tmp", "0123456789ab.tmp.json", "b.0123456789ab.tmpx"];
    for (const name of [...mine, "a.json.0123456789ab.tmp", "a.json.previous.ba9876543210.tmp"]) {
      writeFileSync(join(root, name), "");
    }
    await hostFiles(root).sweep("/");
    await hostFiles(root).sweep("/no");
    expect(readdirSync(root).sort()).toEqual(mine.sort());
  });

  test("tolerate a directory in their place if the operation allows one, and report it otherwise", async () => {
    const root = tempDir();
    mkdirSync(join(root, "d"));
    chmodSync(join(root, "d"), 0o700);
    await expect(hostFiles(root).read("/d")).rejects.toMatchObject({ code: "file-failed" });
    await expect(hostFiles(root).list("/d")).resolves.toEqual([]);
  });

  test("have their size in bytes", async () => {
    const { totalBytes, freeBytes, usedBytes } = await hostFiles(tempDir()).space("/");
    expect(totalBytes).toBeGreaterThan(0);
    expect(freeBytes).toBeGreaterThanOrEqual(0);
    expect(usedBytes + freeBytes).toBeLessThanOrEqual(totalBytes);
  });
});
