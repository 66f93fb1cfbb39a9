import { spawnSync } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

/** The programs of scripts/ that people call: those without a suffix, install.sh, and two that npm runs by their path. */
const programs = [
  ...globSync("scripts/*", { withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.name.includes("."))
    .map(({ name }) => `scripts/${name}`),
  "scripts/install.sh",
  "scripts/build.ts",
  "scripts/reference.ts",
];

function run(program: string, ...args: readonly string[]) {
  const [file = "", ...before] = program.endsWith(".ts") ? [process.execPath, program] : [program];
  return spawnSync(file, [...before, ...args], { encoding: "utf8", timeout: 120_000 });
}

test("tests every program of scripts/", () => {
  expect(programs.length).toBeGreaterThanOrEqual(12);
});

test.each(programs)("%s --help prints its usage", (program) => {
  const { status, stdout, stderr } = run(program, "--help");
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  expect(stdout).toContain(program.replace(/^.*\//, ""));
});

test.each(programs)("%s refuses an unknown option in one line, and does nothing", (program) => {
  const { status, stdout, stderr } = run(program, "--no-such-option");
  expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
  expect(stderr).toContain("--no-such-option");
  expect(stderr.trimEnd().split("\n")).toHaveLength(1);
});

test.each([
  ["--all", "--units"],
  ["--units", "x.test.ts"],
  ["x.test.ts", ""],
])("scripts/test refuses more than one option: %s %s", (...args) => {
  const { status, stderr } = run("scripts/test", ...args.filter((arg) => arg !== ""));
  expect(status).toBe(2);
  expect(stderr.trimEnd().split("\n")).toHaveLength(1);
});

test.each(["demo", "lab", "bench", "package", "test"])(
  "scripts/%s reads its command line before anything else",
  (name) => {
    const text = readFileSync(`scripts/${name}`, "utf8");
    expect(text.indexOf("check_options")).toBeLessThan(text.indexOf("install-packages"));
  },
);
