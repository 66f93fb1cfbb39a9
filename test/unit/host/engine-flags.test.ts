import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";

const MODULE = join(import.meta.dirname, "../../../src/host/engine-flags.ts");

test("V8 knows every flag and takes it while it runs", () => {
  const program = `const { preferSmallMemory } = await import(${JSON.stringify(MODULE)}); preferSmallMemory();`;
  const { status, stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program], {
    encoding: "utf8",
  });
  expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: "", stderr: "" });
});
