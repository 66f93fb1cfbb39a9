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

test("what nobody holds any more is gone after a collection", async () => {
  const make = (): WeakRef<object> => new WeakRef({ held: "by nobody" });
  const left = make();
  // A weak reference holds its object until the turn in which it was made is over.
  await nextTurn();
  collectGarbage();
  expect(left.deref()).toBeUndefined();
});
