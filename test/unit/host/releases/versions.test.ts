import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { hostDirectories } from "../../../../src/host/files/directories.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { hostVersions, type Versions } from "../../../../src/host/releases/versions.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const [BASE, OLD, NEW] = ["0.1.20261101-1200", "0.1.20261110-1200", "0.1.20261120-1200"] as const;
const TRIAL = { from: OLD, since: 1_700_000_000, bootId: "b", before: { connectors: 3 } };

interface Rig {
  readonly versions: Versions;
  readonly path: string;
  readonly put: (name: string, text: string) => void;
  readonly lay: (dir: string, version: string) => void;
}

function rig(): Rig {
  const dir = tempDir();
  const path = join(dir, "versions");
  const packagePath = join(dir, "lib");
  mkdirSync(path);
  const lay = (at: string, version: string): void => {
    mkdirSync(at, { recursive: true });
    for (const [name, text] of Object.entries({ node: "n", "holdfast.mjs": "m", version: `${version}\n` })) {
      writeFileSync(join(at, name), text);
    }
  };
  lay(join(packagePath, "base"), BASE);
  const signal = AbortSignal.timeout(30_000);
  return {
    path,
    versions: hostVersions({ packagePath, path, files: hostFiles(), directories: hostDirectories(), signal }),
    put: (name, text) => writeFileSync(join(path, name), text),
    lay: (name, version) => lay(join(path, name), version),
  };
}

test("lists versions newest first, with their marks, and ignores other files", async () => {
  const { versions, put, lay } = rig();
  lay(OLD, OLD);
  lay(NEW, NEW);
  put(`${NEW}.trial`, JSON.stringify(TRIAL));
  put(`${NEW}.starts`, `${"1 lived".padEnd(63)}\n${"2".padEnd(63)}\n${"3 ended".padEnd(63)}\n`);
  put(`${OLD}.probation`, "until=1700086400\n");
  put("0.1.20261105-1200.failed", "it was started 3 times and never ended well\n");
  for (const name of ["lock", "upgrade.json", "notes.txt", "0.1.failed", `${NEW}.trial.0123456789ab.tmp`])
    put(name, "x");
  expect(await versions.list()).toEqual([
    expect.objectContaining({ version: NEW, isWhole: true, isBase: false, trial: TRIAL, starts: 2 }),
    expect.objectContaining({
      version: OLD,
      isWhole: true,
      probationUntil: 1_700_086_400,
      trial: undefined,
      starts: 0,
    }),
    expect.objectContaining({
      version: "0.1.20261105-1200",
      isWhole: false,
      failed: { code: "given-up", message: "it was started 3 times and never ended well" },
    }),
    expect.objectContaining({ version: BASE, isBase: true, isWhole: true, failed: undefined }),
  ]);
});

test("while the package is replaced, the version that it brought before is the base, if complete", async () => {
  const { versions, lay, path } = rig();
  lay("../lib/base.before", OLD);
  expect((await versions.list()).find(({ isBase }) => isBase)).toMatchObject({ version: OLD, isWhole: true });
  rmSync(join(path, "../lib/base.before/node"));
  expect((await versions.list()).find(({ isBase }) => isBase)).toMatchObject({ version: BASE });
});

test("counts damaged marks and versions as damaged", async () => {
  const { versions, put, lay, path } = rig();
  lay(OLD, NEW);
  lay(NEW, NEW);
  writeFileSync(join(path, NEW, "holdfast.mjs"), "");
  put(`${NEW}.trial`, "{");
  put(`${NEW}.probation`, "tomorrow");
  mkdirSync(join(path, `${NEW}.failed`));
  symlinkSync("/nowhere", join(path, "0.1.20261115-1200"));
  expect(await versions.list()).toMatchObject([
    { version: NEW, isWhole: false, trial: "damaged", probationUntil: 0, failed: { code: "given-up" } },
    { version: "0.1.20261115-1200", isWhole: false },
    { version: OLD, isWhole: false },
    { version: BASE, isWhole: true },
  ]);
});

async function stage({ versions, lay }: Rig, version: string): Promise<void> {
  await versions.staging();
  lay(`part/${version}.unpacked`, version);
  await versions.stage(`${version}.unpacked`, version, "sha");
}

test("a placed version is on trial, without marks of an earlier trial", async () => {
  const own = rig();
  const { versions, put, path } = own;
  await stage(own, NEW);
  for (const mark of ["failed", "starts", "probation", "aside"]) put(`${NEW}.${mark}`, "x\n");
  await versions.place(NEW, TRIAL);
  expect(await versions.list()).toMatchObject([
    { version: NEW, isWhole: true, trial: TRIAL, starts: 0, probationUntil: undefined, failed: undefined },
    { version: BASE },
  ]);
  expect(readdirSync(path).sort()).toEqual([NEW, `${NEW}.starts`, `${NEW}.trial`, "part"].sort());
  // A full disk must allow the maximal number of starts.
  expect(readFileSync(join(path, `${NEW}.starts`))).toEqual(Buffer.alloc(192));
  // Repeating it after an interruption completes it.
  await versions.place(NEW, TRIAL);
  await stage(own, NEW);
  await expect(versions.place(NEW, TRIAL)).rejects.toMatchObject({ code: "version-exists" });
});

test("recognizes a staged version by its archive", async () => {
  const own = rig();
  await stage(own, NEW);
  expect(await own.versions.staged(NEW, "sha")).toBe(join(own.path, `part/${NEW}.ready`));
  expect(await own.versions.staged(NEW, "another")).toBeUndefined();
  expect(await own.versions.staged(OLD, "sha")).toBeUndefined();
  await own.versions.place(NEW, TRIAL);
  expect(await own.versions.staged(NEW, "sha")).toBeUndefined();
});

test("a staged version keeps no archive", async () => {
  const own = rig();
  await own.versions.staging();
  own.put("part/abc.tar.zst", "x");
  own.put("part/abc.tar.zst.from", "x");
  await stage(own, OLD);
  await stage(own, NEW);
  expect(readdirSync(join(own.path, "part")).sort()).toEqual([`${NEW}.ready`, `${NEW}.sha256`]);
});

test("writes the trial mark before the version", async () => {
  const own = rig();
  await stage(own, NEW);
  const cut = { ...hostDirectories(), move: () => Promise.reject(new Error("the power is gone")) };
  const options = { packagePath: join(own.path, "..", "lib"), path: own.path, files: hostFiles(), directories: cut };
  const versions = hostVersions({ ...options, signal: AbortSignal.timeout(30_000) });
  await expect(versions.place(NEW, TRIAL)).rejects.toThrow("the power is gone");
  expect(readdirSync(own.path).sort()).toEqual([`${NEW}.starts`, `${NEW}.trial`, "part"].sort());
  await own.versions.place(NEW, TRIAL);
  expect((await own.versions.list())[0]).toMatchObject({ version: NEW, isWhole: true, trial: TRIAL });
});

test("moves aside a file in the way that is not a version", async () => {
  const own = rig();
  await stage(own, NEW);
  own.put(NEW, "a file");
  await own.versions.place(NEW, TRIAL);
  expect((await own.versions.list())[0]).toMatchObject({ version: NEW, isWhole: true, trial: TRIAL });
});

test("replaces an abandoned version when placed again", async () => {
  const own = rig();
  const { versions, lay, path } = own;
  lay(NEW, NEW);
  writeFileSync(join(path, NEW, "old"), "x");
  await versions.fail(NEW, { code: "crashed", message: "it crashed" });
  await stage(own, NEW);
  await versions.place(NEW, TRIAL);
  expect(existsSync(join(path, NEW, "old"))).toBe(false);
  expect((await versions.list())[0]).toMatchObject({ version: NEW, failed: undefined, trial: TRIAL });
});

test("refuses to place what was not staged", async () => {
  const { versions } = rig();
  await expect(versions.place(NEW, TRIAL)).rejects.toMatchObject({ code: "not-staged" });
  await expect(versions.stage("nothing", NEW, "sha")).rejects.toMatchObject({ code: "not-staged" });
  await expect(versions.fail("../../etc/passwd", { code: "a", message: "b" })).rejects.toThrow("not a version");
});

test("marks follow a version's life", async () => {
  const own = rig();
  const { versions, put } = own;
  await stage(own, NEW);
  await versions.place(NEW, TRIAL);
  put(`${NEW}.starts`, "1\n");
  await versions.setAside(NEW);
  expect(existsSync(join(own.path, `${NEW}.aside`))).toBe(true);
  expect((await versions.list())[0]).toMatchObject({ version: NEW, trial: TRIAL, starts: 1, isAside: true });
  await versions.restore(NEW);
  expect((await versions.list())[0]).toMatchObject({ trial: TRIAL, isAside: false });
  await versions.restore(NEW);
  expect(existsSync(join(own.path, `${NEW}.aside`))).toBe(false);
  await versions.setAside(NEW);
  await versions.prove(NEW, 1_700_086_400.7);
  expect((await versions.list())[0]).toMatchObject({ trial: undefined, probationUntil: 1_700_086_400, starts: 1 });
  await versions.fail(NEW, { code: "crashed", message: "it crashed", at: 5 });
  expect((await versions.list())[0]).toMatchObject({ failed: { code: "crashed", message: "it crashed", at: 5 } });
  await versions.forgive(NEW);
  await versions.unmark(NEW);
  expect((await versions.list())[0]).toMatchObject({ probationUntil: undefined, failed: undefined, isWhole: true });
  expect(existsSync(join(own.path, `${NEW}.aside`))).toBe(false);
});

test("removes old versions, keeps named ones, and remembers failures", async () => {
  const { versions, put, lay, path } = rig();
  for (const version of ["0.1.20261105-1200", OLD, NEW]) lay(version, version);
  put("0.1.20261105-1200.failed", "x");
  put("0.1.20261105-1200.starts", "x");
  put("0.1.20261104-1200.trial", "{}");
  put(`${NEW}.trial.0123456789ab.tmp`, "x");
  expect(await versions.clean([OLD, NEW])).toEqual(["0.1.20261105-1200"]);
  expect(readdirSync(path).sort()).toEqual(["0.1.20261105-1200.failed", OLD, NEW, "part"].sort());
  expect(readdirSync(join(path, "part"))).toEqual([]);
});

test("runs one upgrade at a time", () => {
  const own = rig();
  const lock = own.versions.lock();
  expect(() => own.versions.lock()).toThrow(expect.objectContaining({ code: "busy" }));
  lock.release();
  own.versions.lock().release();
});

test("reads the written state of an upgrade, and none if damaged", async () => {
  const { versions, put } = rig();
  expect(await versions.standing()).toBeUndefined();
  const standing = { state: "IN_PROGRESS", step: "fetching", from: OLD, begunAt: 1 } as const;
  await versions.setStanding(standing);
  expect(await versions.standing()).toEqual(standing);
  put("upgrade.json", `{"state":`);
  expect(await versions.standing()).toBeUndefined();
});
