import { existsSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { LEFT_OUT } from "../../support/machine/units-left-out.ts";

test("what is left out under the units exists", () => {
  const absent = LEFT_OUT.flatMap(({ file, tests = [] }) => {
    if (!existsSync(file)) return [file];
    const text = readFileSync(file, "utf8");
    return tests.filter((begin) => !text.includes(`"${begin}`)).map((begin) => `${file}: ${begin}`);
  });
  expect(absent).toEqual([]);
});
