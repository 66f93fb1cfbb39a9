import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { tempDir } from "../../../support/temp-dir.ts";

const MODULE = join(import.meta.dirname, "../../../../src/host/process/own-bundle.ts");
const FLAGS = ["--disable-sigusr1", "--disable-warning=ExperimentalWarning"];

/** The last line of each bundle. */
const END = "\n//# sourceMappingURL=overlay.mjs.map\n";

/** Runs a program that becomes or loads the bundle of `overlay`, and then reports that it is still itself. */
function run(use: "becomeOwnBundle" | "loadOwnBundle", overlay: string | undefined, entry = "holdfast.mjs") {
  const dir = tempDir();
  const text = `import { ${use} } from ${JSON.stringify(MODULE)};
    await ${use}("overlay");
    console.log("itself");`;
  writeFileSync(join(dir, entry), text);
  if (overlay !== undefined) writeFileSync(join(dir, "overlay.mjs"), overlay);
  const { pid, stdout, stderr } = spawnSync(process.execPath, [...FLAGS, join(dir, entry), "overlay", "--run", dir], {
    encoding: "utf8",
  });
  return { pid, dir, output: stdout.trim() || stderr, stderr };
}

test("a program becomes its own bundle: the same process with the same arguments", () => {
  const prints = "console.log(JSON.stringify([process.pid, process.execArgv, ...process.argv.slice(1)]))";
  const { pid, dir, output } = run("becomeOwnBundle", prints + END);
  expect(JSON.parse(output)).toEqual([pid, FLAGS, join(dir, "overlay.mjs"), "overlay", "--run", dir]);
});

test.each([
  ["there is none", undefined, "holdfast.mjs"],
  ["it is empty", "", "holdfast.mjs"],
  ["this is no bundle", `console.log('other')${END}`, "main.mjs"],
])("it continues itself if %s", (_, overlay, entry) => {
  expect(run("becomeOwnBundle", overlay, entry).output).toBe("itself");
});

test.each([
  ["in the middle of a word", "console.lo"],
  ["where it still parses", "console.log('other')\n"],
  ["in its last line", `console.log('other')${END.slice(0, -6)}`],
])("it continues itself if the bundle is cut off %s, and reports it", (_, overlay) => {
  const { dir, output, stderr } = run("becomeOwnBundle", overlay);
  expect(output).toBe("itself");
  expect(stderr).toContain(`${join(dir, "overlay.mjs")} is truncated: overlay runs from holdfast.mjs`);
  expect(run("loadOwnBundle", overlay).output).toContain("overlay.mjs is truncated");
});

test("a test of a version loads the bundle, and fails when that is impossible", () => {
  expect(run("loadOwnBundle", `console.log('loaded')${END}`).output).toBe("loaded\nitself");
  expect(run("loadOwnBundle", `import 'node:missing'${END}`).output).toContain("node:missing");
  expect(run("loadOwnBundle", undefined).output).toBe("itself");
});
