import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { someDirectories } from "../../support/local-agent.ts";

const SCRIPT = fileURLToPath(new URL("../../../scripts/holdfast", import.meta.url));

describe("scripts/holdfast", () => {
  it("runs the checkout from any folder, through links, with its exit code", async () => {
    await using dirs = await someDirectories();
    const link = join(dirs.root, "hf link");
    symlinkSync(SCRIPT, join(dirs.root, "first"));
    symlinkSync("first", link);
    for (const path of [SCRIPT, link, "./hf link"]) {
      expect(execFileSync(path, ["version"], { cwd: dirs.root, encoding: "utf8" })).toMatch(
        /^holdfast .* on Node v26\./,
      );
    }
    const wrong = spawnSync(link, ["nonsense word"], { encoding: "utf8", cwd: "/" });
    expect(wrong.status).toBe(2);
    expect(wrong.stderr).toContain("'nonsense word'");
  });

  it("reports what to do if nothing is installed", async () => {
    await using dirs = await someDirectories();
    mkdirSync(join(dirs.root, "scripts"));
    const copy = join(dirs.root, "scripts", "holdfast");
    copyFileSync(SCRIPT, copy);
    const { status, stderr } = spawnSync(copy, ["version"], { encoding: "utf8" });
    expect(status).toBe(1);
    expect(stderr).toMatch(/node_modules is missing or incomplete: run 'npm ci'/);
  });
});
