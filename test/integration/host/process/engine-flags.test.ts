import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { collectGarbage } from "../../../../src/host/process/engine-flags.ts";

const MODULE = join(import.meta.dirname, "../../../../src/host/process/engine-flags.ts");

test("V8 supports every flag and accepts it at run time", () => {
  const module = `await import(${JSON.stringify(MODULE)})`;
  const program = `const { makeRoom, preferSmallMemory } = ${module}; preferSmallMemory(); makeRoom();`;
  const { status, stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program], {
    encoding: "utf8",
  });
  expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: "", stderr: "" });
});

test.each(["compileAll", "preferSpeed"])("what a start skips is done with the work: %s", (revert) => {
  const program = `
    const { setFlagsFromString } = await import("node:v8");
    const { ${revert}, START_FLAGS } = await import(${JSON.stringify(MODULE)});
    const isOptimised = (f) => (%GetOptimizationStatus(f) & 16) !== 0;
    const half = (n) => (n - (n % 2)) / 2;
    const work = (rounds) => {
      let sum = 0;
      for (let round = 0; round < rounds && !isOptimised(half); round += 1) sum += half(round);
      return isOptimised(half);
    };
    for (const flag of START_FLAGS) setFlagsFromString(flag);
    // Ten thousand are enough to optimise it; the compiler runs beside, later on a busy machine.
    const before = work(2e5);
    ${revert}();
    console.log(before, work(5e6));`;
  const args = ["--allow-natives-syntax", "--input-type=module", "-e", program];
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  expect({ stdout, stderr }).toEqual({ stdout: "false true\n", stderr: "" });
});

test("a collection frees what is unreachable", async () => {
  const make = (): WeakRef<object> => new WeakRef({ held: "by nobody" });
  const left = make();
  // A weak reference holds its object until the end of the turn that made it.
  await nextTurn();
  collectGarbage();
  expect(left.deref()).toBeUndefined();
});
