import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { sweep } from "../../support/run-directory.ts";
import { tempDir } from "../../support/temp-dir.ts";

test("a run removes what a killed one left, and nothing of what that had mounted", () => {
  const parent = tempDir();
  const outside = tempDir();
  writeFileSync(join(outside, "kept"), "kept");
  const dirOf = (pid: number): string => join(parent, `hf${pid}.abcDEF`);
  const dead = spawnSync("true").pid;
  const place = join(dirOf(dead), "a place");
  mkdirSync(place, { recursive: true });
  mkdirSync(dirOf(process.pid));
  mkdirSync(join(parent, "hf-other"));
  onTestFinished(() => void spawnSync("umount", ["--recursive", "--lazy", place]));
  execFileSync("mount", ["--bind", outside, place]);
  mkdirSync(join(outside, "inner"));
  execFileSync("mount", ["-t", "tmpfs", "tmpfs", join(place, "inner")]);

  sweep(parent);

  expect(existsSync(dirOf(dead))).toBe(false);
  expect(readdirSync(parent).toSorted()).toEqual([`hf${process.pid}.abcDEF`, "hf-other"].toSorted());
  expect(readdirSync(outside).toSorted()).toEqual(["inner", "kept"]);
  expect(readFileSync("/proc/self/mountinfo", "utf8")).not.toContain(dirOf(dead));
});
