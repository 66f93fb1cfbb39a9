import { createHash } from "node:crypto";
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { hostFiles, type Files } from "../../../../src/host/files/files.ts";
import { stateFile, type Loaded } from "../../../../src/host/files/state-file.ts";
import { deferred } from "../../../support/deferred.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const Value = z.object({ n: z.number(), text: z.string() });
const old = { n: 1, text: "old é" };
const newer = { n: 2, text: 'new "quoted" \\' };

async function twice(root = tempDir(), keepsPrevious = true) {
  const path = join(root, "s.json");
  const file = stateFile(hostFiles(root), { path: "/s.json", schema: Value, keepsPrevious });
  await file.save(old);
  await file.save(newer);
  return { root, path, file };
}

/** Reports whether a loaded value was saved before. */
function isTruthful(loaded: Loaded<z.infer<typeof Value>>): boolean {
  if (loaded.is === "absent" || loaded.is === "lost") return true;
  const text = JSON.stringify(loaded.value);
  return text === JSON.stringify(loaded.is === "good" ? newer : old);
}

describe("a state file", () => {
  test("is absent, then the last saved value, readable by its owner only", async () => {
    const root = tempDir();
    const file = stateFile(hostFiles(root), { path: "/s.json", schema: Value, keepsPrevious: true });
    expect(await file.load()).toEqual({ is: "absent" });
    await file.save(old);
    expect(await file.load()).toEqual({ is: "good", value: old });
    await file.save(newer);
    expect(await file.load()).toEqual({ is: "good", value: newer });
    for (const name of ["s.json", "s.json.previous"]) expect(statSync(join(root, name)).mode & 0o777).toBe(0o600);
    expect(readdirSync(root).sort()).toEqual(["s.json", "s.json.previous"]);
  });

  test("with any byte changed is never read as something that was not saved", async () => {
    const { path, file } = await twice();
    const good = readFileSync(path);
    for (let at = 0; at < good.length; at += 1) {
      for (const flip of [0x01, 0x20, 0x80, 0xff]) {
        const bad = Buffer.from(good);
        bad[at] = (bad[at] ?? 0) ^ flip;
        writeFileSync(path, bad);
        const loaded = await file.load();
        expect(isTruthful(loaded), `byte ${at} ^ ${flip}: ${JSON.stringify(loaded)}`).toBe(true);
        expect(loaded.is).not.toBe("lost");
      }
    }
  });

  test("truncated anywhere gives the previous copy and is set aside", async () => {
    const { path, root, file } = await twice();
    const good = readFileSync(path);
    for (let length = 0; length < good.length - 1; length += 1) {
      writeFileSync(path, good);
      truncateSync(path, length);
      const loaded = await file.load();
      expect(loaded).toEqual({ is: "recovered", value: old, damagedCopy: "/s.json.damaged" });
      expect(readFileSync(join(root, "s.json.damaged"))).toEqual(good.subarray(0, length));
    }
  });

  test.each([
    ["another form's body", '{"format":1,"sha256":"#","body":{"n":"x","text":"t"}}', '{"n":"x","text":"t"}', "newer"],
    ["no checksum", '{"format":1,"body":{"n":1,"text":"t"}}', ""],
    ["a checksum of another body", '{"format":1,"sha256":"#","body":{"n":1,"text":"t"}}', '{"n":2,"text":"t"}'],
    ["a list", "[]", ""],
    ["a forbidden key", '{"format":1,"sha256":"#","body":{"__proto__":{}}}', '{"__proto__":{}}'],
  ])("with %s is lost when there is no previous copy", async (_what, text, summed, ending = "damaged") => {
    const root = tempDir();
    const sum = createHash("sha256").update(summed).digest("hex");
    writeFileSync(join(root, "s.json"), text.replace("#", sum));
    const file = stateFile(hostFiles(root), { path: "/s.json", schema: Value, keepsPrevious: true });
    expect(await file.load()).toEqual({ is: "lost", damagedCopy: `/s.json.${ending}` });
    expect(await file.load()).toEqual({ is: "absent" });
    await file.save(newer);
    expect(await file.load()).toEqual({ is: "good", value: newer });
  });

  test("with both copies damaged is lost, and both are kept for diagnosis", async () => {
    const { path, root, file } = await twice();
    writeFileSync(path, "x");
    writeFileSync(`${path}.previous`, "y");
    expect(await file.load()).toEqual({ is: "lost", damagedCopy: "/s.json.damaged" });
    expect(readdirSync(root).sort()).toEqual(["s.json.damaged", "s.json.previous.damaged"]);
  });

  test("can be inspected first, and loading it gives the same", async () => {
    const { path, root, file } = await twice();
    expect(await file.inspect()).toEqual({ is: "good", value: newer });
    writeFileSync(`${path}.previous`, "damaged");
    const isOlderLost = { is: "good", value: newer, damagedCopy: "/s.json.previous.damaged" };
    expect([await file.inspect(), await file.load()]).toEqual([isOlderLost, isOlderLost]);
    writeFileSync(path, "damaged");
    const isRecovered = { is: "recovered", value: newer, damagedCopy: "/s.json.damaged" };
    expect([await file.inspect(), await file.load()]).toEqual([isRecovered, isRecovered]);
    writeFileSync(path, "x");
    writeFileSync(`${path}.previous`, "y");
    expect([await file.inspect(), (await file.load()).is]).toEqual([
      { is: "lost", damagedCopy: "/s.json.damaged" },
      "lost",
    ]);
    expect(readdirSync(root).filter((name) => !name.endsWith(".damaged"))).toEqual([]);
  });

  test("whose previous copy is damaged reports it, and has two good copies again", async () => {
    const { path, root, file } = await twice();
    writeFileSync(`${path}.previous`, "damaged");
    expect(await file.load()).toEqual({ is: "good", value: newer, damagedCopy: "/s.json.previous.damaged" });
    expect(readFileSync(join(root, "s.json.previous.damaged"), "utf8")).toBe("damaged");
    expect(await file.load()).toEqual({ is: "good", value: newer });
    writeFileSync(path, "damaged");
    expect(await file.load()).toMatchObject({ is: "recovered", value: newer });
  });

  test("saved again during a save holds the last value, and the previous one", async () => {
    const root = tempDir();
    const real = hostFiles(root);
    const bothAsked = deferred<undefined>();
    const files: Files = {
      ...real,
      async writeAtomic(path, text, mode) {
        if (text.includes('"n":1,')) await bothAsked.promise;
        await real.writeAtomic(path, text, mode);
      },
    };
    const file = stateFile(files, { path: "/s.json", schema: Value, keepsPrevious: true });
    const saves = [file.save(old), file.save(newer)];
    bothAsked.resolve(undefined);
    await Promise.all(saves);
    expect(await file.load()).toEqual({ is: "good", value: newer });
    writeFileSync(join(root, "s.json"), "damaged");
    expect(await file.load()).toMatchObject({ is: "recovered", value: old });
  });

  test("replaced by a symbolic link is read, and replaced without writing through the link", async () => {
    const { root, path, file } = await twice();
    const elsewhere = join(tempDir(), "elsewhere");
    writeFileSync(elsewhere, "not ours");
    await file.remove();
    symlinkSync(elsewhere, path);
    expect((await file.load()).is).toBe("lost");
    symlinkSync(elsewhere, path);
    await file.save(newer);
    expect(readFileSync(elsewhere, "utf8")).toBe("not ours");
    expect(statSync(join(root, "s.json")).isFile()).toBe(true);
  });

  test("without previous copies keeps one file", async () => {
    const { root, path, file } = await twice(tempDir(), false);
    expect(readdirSync(root)).toEqual(["s.json"]);
    writeFileSync(path, "");
    expect((await file.load()).is).toBe("lost");
  });

  test("that the disk refuses to write stays readable unchanged", async () => {
    const root = tempDir();
    const real = hostFiles(root);
    let isFull = false;
    const files: Files = {
      ...real,
      writeAtomic: (path, text, mode) =>
        isFull ? Promise.reject(new Error("disk-full")) : real.writeAtomic(path, text, mode),
      move: (from, to) => (isFull ? Promise.reject(new Error("read-only")) : real.move(from, to)),
    };
    const file = stateFile(files, { path: "/s.json", schema: Value, keepsPrevious: true });
    await file.save(old);
    isFull = true;
    await expect(file.save(newer)).rejects.toThrow("disk-full");
    expect(await file.load()).toEqual({ is: "good", value: old });
    writeFileSync(join(root, "s.json"), "damaged");
    expect((await file.load()).is).toBe("lost");
    expect(readFileSync(join(root, "s.json"), "utf8")).toBe("damaged");
  });

  test("removed is absent", async () => {
    const { root, file } = await twice();
    await file.remove();
    expect(await file.load()).toEqual({ is: "absent" });
    expect(readdirSync(root)).toEqual([]);
    await file.remove();
  });

  test("damaged after reading does not replace the previous copy when a save is interrupted", async () => {
    const { path, file, root } = await twice();
    const real = hostFiles(root);
    writeFileSync(path, "damaged");
    const files: Files = {
      ...real,
      writeAtomic: (at, text, mode) =>
        at === "/s.json" ? Promise.reject(new Error("cut")) : real.writeAtomic(at, text, mode),
    };
    const cut = stateFile(files, { path: "/s.json", schema: Value, keepsPrevious: true });
    await expect(cut.save({ n: 3, text: "third" })).rejects.toThrow("cut");
    expect(await file.load()).toMatchObject({ is: "recovered", value: old });
  });

  test("whose removal is interrupted is complete or absent, and never older", async () => {
    const { file, root } = await twice();
    const real = hostFiles(root);
    let removals = 0;
    const files: Files = {
      ...real,
      remove: (at) => ((removals += 1) > 1 ? Promise.reject(new Error("cut")) : real.remove(at)),
    };
    const cut = stateFile(files, { path: "/s.json", schema: Value, keepsPrevious: true });
    await expect(cut.remove()).rejects.toThrow("cut");
    expect(await file.load()).toEqual({ is: "good", value: newer });
  });

  test.each([
    ["a directory", (path: string) => mkdirSync(path)],
    ["a circle of links", (path: string) => symlinkSync(path, path)],
  ])("with %s in its place gives the previous copy and can be saved again", async (_what, put) => {
    const { path, file } = await twice();
    rmSync(path);
    put(path);
    expect(await file.load()).toEqual({ is: "recovered", value: old, damagedCopy: "/s.json.damaged" });
    await file.save(newer);
    expect(await file.load()).toEqual({ is: "good", value: newer });
  });

  test("set aside before an interruption still counts as recovered", async () => {
    const { path, file } = await twice();
    writeFileSync(path, "damaged");
    expect((await file.load()).is).toBe("recovered");
    expect(await file.load()).toMatchObject({ is: "recovered", value: old });
  });
});
