import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { resetVerb } from "../../../../src/cli/verbs/reset.ts";
import { someCall } from "../../../support/fake-call.ts";
import { tempDir } from "../../../support/temp-dir.ts";

test("nothing is deleted while a network change with a rollback is pending", async () => {
  const dir = tempDir();
  const pending = join(dir, "desired/checkpoint.json");
  mkdirSync(join(dir, "desired"));
  writeFileSync(pending, "{}");
  const dirs = { root: dir, stateDir: dir, runDir: join(dir, "run"), [Symbol.asyncDispose]: () => Promise.resolve() };
  const { call } = someCall(dirs, { values: { yes: true } });
  await expect(resetVerb.run(call)).rejects.toMatchObject({ code: "busy" });
  expect(existsSync(pending)).toBe(true);
});

test("reports a machine that is not registered, and changes nothing", async () => {
  const dir = tempDir();
  const dirs = { root: dir, stateDir: dir, runDir: join(dir, "run"), [Symbol.asyncDispose]: () => Promise.resolve() };
  const { call, shown } = someCall(dirs, {});
  expect(await resetVerb.run(call)).toBe("ok");
  expect(shown.join("")).toContain(`this node is not registered, and there is nothing to reset in ${dir}`);
  expect(readdirSync(dir)).toEqual([]);
});
