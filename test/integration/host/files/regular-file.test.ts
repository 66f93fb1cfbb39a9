import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { openDatabase } from "../../../../src/host/files/database.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { readPidFile } from "../../../../src/host/process/pid-file.ts";
import { isNoRegularFile, readRegularFile, readRegularFileSync } from "../../../../src/host/files/regular-file.ts";
import { stateFile } from "../../../../src/host/files/state-file.ts";
import { readTextInput } from "../../../../src/host/process/text-input.ts";
import { errnoOf } from "../../../../src/errors.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const { signal } = new AbortController();

/** Things in the place of a file that block or never end. */
const STRANGE: readonly (readonly [string, (path: string) => unknown])[] = [
  ["a pipe", (path) => execFileSync("mkfifo", [path])],
  ["a link to a pipe", (path) => [execFileSync("mkfifo", [`${path}.pipe`]), symlinkSync(`${path}.pipe`, path)]],
  ["a link to a device that never ends", (path) => symlinkSync("/dev/zero", path)],
  ["a directory", (path) => mkdirSync(path)],
];

describe.each(STRANGE)("%s", (_, make) => {
  const place = (): string => {
    const path = join(tempDir(), "file");
    make(path);
    return path;
  };

  test("is not read", async () => {
    const path = place();
    const codes = [await readRegularFile(path, 100).catch(errnoOf)];
    try {
      readRegularFileSync(path, 100);
    } catch (error) {
      codes.push(errnoOf(error));
    }
    expect(codes.map((code) => isNoRegularFile(String(code)))).toEqual([true, true]);
    await expect(hostFiles().read(path)).rejects.toMatchObject({ code: "file-failed" });
    await expect(readTextInput(path, 100, signal)).rejects.toMatchObject({ code: "file-failed" });
  });

  test("in the place of a state file is damage, and is moved aside", async () => {
    const path = place();
    const file = stateFile(hostFiles(), { path, schema: z.object({ a: z.int() }), keepsPrevious: true });
    expect(await file.load()).toEqual({ is: "lost", damagedCopy: `${path}.damaged` });
    await file.save({ a: 1 });
    expect(await file.load()).toEqual({ is: "good", value: { a: 1 } });
  });

  test("in the place of a database or a pid file blocks nothing", async () => {
    const path = place();
    const options = { migrations: ["CREATE TABLE t (a) STRICT"].map((sql) => sql.replace("(a)", "(a TEXT)")) };
    const { sql } = openDatabase(path, { ...options, exclusive: true });
    sql.exec("INSERT INTO t VALUES ('x')");
    sql.close();
    const run = tempDir();
    make(join(run, "agent.pid"));
    expect(await readPidFile(run, "agent")).toBeUndefined();
  });
});

test("does not read a file larger than allowed", async () => {
  const path = join(tempDir(), "file");
  writeFileSync(path, "x".repeat(101));
  expect(await readRegularFile(path, 100).catch(errnoOf)).toBe("EFBIG");
  await expect(readTextInput(path, 100, signal)).rejects.toMatchObject({ code: "too-large" });
  rmSync(path);
  await expect(readTextInput(path, 100, signal)).rejects.toMatchObject({ code: "not-found" });
});

test("does not repeat a license in the place of a file's name", async () => {
  const license = "eyJhbGciOiJFZERTQSJ9.eyJqdGkiOiIxIn0.c2lnbmF0dXJl";
  const error: unknown = await readTextInput(license, 100, signal).catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ code: "usage" });
  expect(String(error)).not.toContain("eyJ");
});
