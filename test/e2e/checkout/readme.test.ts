import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const root = join(import.meta.dirname, "../../..");

test("the README's commands are programs of this checkout, and the tests run as in CI", () => {
  const readme = readFileSync(join(root, "README.md"), "utf8");
  const blocks = [...readme.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, text]) => text?.trim());
  expect(blocks).toEqual([
    "scripts/demo",
    "scripts/test",
    "sh dist/release/install.sh --license license\nholdfast status",
  ]);
  for (const [program] of readme.matchAll(/scripts\/[a-z-]+/g)) expect(existsSync(join(root, program))).toBe(true);
  expect(readFileSync(join(root, ".ci/run"), "utf8")).toContain("exec scripts/test\n");
});
