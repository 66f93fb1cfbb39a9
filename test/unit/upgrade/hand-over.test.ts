import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { hostDirectories } from "../../../src/host/files/directories.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { lockFile } from "../../../src/host/process/run-lock.ts";
import { sweepHandedOver } from "../../../src/upgrade/hand-over.ts";
import { tempDir } from "../../support/temp-dir.ts";

test("removes abandoned bundles, and keeps requested ones and those being handed over", async () => {
  const versions = tempDir();
  const place = (name: string): string => join(versions, "given", name);
  for (const name of ["over", "cut", "asked", "copying"]) {
    mkdirSync(place(name), { recursive: true });
    writeFileSync(join(place(name), "manifest.jws"), "a.b.c\n");
    if (name !== "cut") writeFileSync(join(place(name), "lock"), "");
  }
  const lock = lockFile(join(place("copying"), "lock"));
  const isAskedFor = (path: string): Promise<boolean> => Promise.resolve(path === place("asked"));
  const sweep = (): Promise<void> =>
    sweepHandedOver(versions, { files: hostFiles(), directories: hostDirectories(), isAskedFor });
  const left = (): readonly string[] => ["over", "cut", "asked", "copying"].filter((name) => existsSync(place(name)));
  await sweep();
  expect(left()).toEqual(["asked", "copying"]);
  lock.release();
  await sweep();
  expect(left()).toEqual(["asked"]);
});
