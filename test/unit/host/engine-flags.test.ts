import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { collectGarbage } from "../../../src/host/engine-flags.ts";

const MODULE = join(import.meta.dirname, "../../../src/host/engine-flags.ts");

test("V8 knows every flag and takes it while it runs", () => {
  const program = `const { preferSmallMemory } = await import(${JSON.stringify(MODULE)}); preferSmallMemory();`;
  const { status, stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program], {
    encoding: "utf8",
  });
  expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: "", stderr: "" });
});

test("what a start is spared comes back with the work", () => {
  const program = `
    const { setFlagsFromString } = await import("node:v8");
    const { preferSpeed, START_FLAGS } = await import(${JSON.stringify(MODULE)});
    const isOptimised = (f) => (%GetOptimizationStatus(f) & 16) !== 0;
    const half = (n) => (n - (n % 2)) / 2;
    const work = () => {
      let sum = 0;
      for (let round = 0; round < 5e6 && !isOptimised(half); round += 1) sum += half(round);
      return isOptimised(half);
    };
    for (const flag of START_FLAGS) setFlagsFromString(flag);
    const before = work();
    preferSpeed();
    console.log(before, work());`;
  const args = ["--allow-natives-syntax", "--input-type=module", "-e", program];
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  expect({ stdout, stderr }).toEqual({ stdout: "false true\n", stderr: "" });
});

test("what nobody holds any more is gone after a collection", async () => {
  const make = (): WeakRef<object> => new WeakRef({ held: "by nobody" });
  const left = make();
  // A weak reference holds its object until the turn in which it was made is over.
  await nextTurn();
  collectGarbage();
  expect(left.deref()).toBeUndefined();
});

test("with room, buffers that pass by do not have everything collected", () => {
  const program = `
    const { setFlagsFromString } = await import("node:v8");
    const { PerformanceObserver, constants } = await import("node:perf_hooks");
    const { collectGarbage, makeRoom, preferSpeed, START_FLAGS } = await import(${JSON.stringify(MODULE)});
    const isMajor = ({ detail }) => detail.kind !== constants.NODE_PERFORMANCE_GC_MINOR;
    let major = 0;
    const count = (list) => (major += list.getEntries().filter(isMajor).length);
    const passBy = async () => {
      const passing = [];
      for (let round = 0; round < 6000; round += 1) {
        passing[round % 100] = Buffer.allocUnsafeSlow(65536);
        if (round % 10 === 0) await new Promise(setImmediate);
      }
      return major;
    };
    for (const flag of START_FLAGS) setFlagsFromString(flag);
    collectGarbage();
    preferSpeed();
    new PerformanceObserver(count).observe({ entryTypes: ["gc"] });
    const before = await passBy();
    makeRoom();
    console.log(before > 0, (await passBy()) - before);`;
  const args = ["--disable-warning=ExperimentalWarning", "--input-type=module", "-e", program];
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  expect({ stdout, stderr }).toEqual({ stdout: "true 0\n", stderr: "" });
});
