import { expect, test } from "vitest";
import { bundleProcess } from "../../../../src/host/process/bundle-process.ts";
import type { ExecResult } from "../../../../src/host/process/exec.ts";
import { INLINE_BUNDLE_BYTES } from "../../../../src/protocol/documents/bundle.ts";

const report = { schema: 1, path: "-", name: "holdfast-a-1.tar.gz", bytes: 3, parts: [], missing: [], archive: "YWJj" };
const { signal } = new AbortController();

function made(result: Partial<ExecResult>, config?: string) {
  const lines: string[][] = [];
  const exec = {
    run(file: string, args: readonly string[]) {
      lines.push([file, ...args]);
      return Promise.resolve({ exitCode: 0, signal: undefined, stdout: "", stderr: "", truncated: false, ...result });
    },
  };
  const make = bundleProcess({ exec, stateDir: "/s", runDir: "/r", config, command: ["holdfast", "bundle"] });
  return { make, lines };
}

test("requests the archive through standard output, with the paths and settings of this node", async () => {
  const { make, lines } = made({ stdout: JSON.stringify(report) }, "/c.json");
  expect(await make(70_000, signal)).toEqual(report);
  const line = "holdfast bundle --json --to - --max 70000 --state /s --run /r --config /c.json";
  expect(lines).toEqual([line.split(" ")]);
});

test.each<[string, Partial<ExecResult>, string]>([
  ["a refusal", { exitCode: 1, stdout: '{"error":{"code":"busy","message":"another is being made"}}' }, "busy"],
  ["an end by itself", { exitCode: 134, stderr: "out of memory" }, "bundle-failed"],
  ["what is no report", { stdout: "[]" }, "bundle-failed"],
  ["a report without an archive", { stdout: JSON.stringify({ ...report, archive: undefined }) }, "bundle-failed"],
  ["a name that is a path", { stdout: JSON.stringify({ ...report, name: "holdfast-/../x.tar.gz" }) }, "bundle-failed"],
  ["too much output", { truncated: true }, "too-large"],
  ["a large archive", { stdout: JSON.stringify({ ...report, bytes: INLINE_BUNDLE_BYTES + 1 }) }, "too-large"],
])("reports %s as such", async (_, result, code) => {
  await expect(made(result).make(70_000, signal)).rejects.toMatchObject({ code });
});
