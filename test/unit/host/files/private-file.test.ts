import { chmodSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { readPrivateFile } from "../../../../src/host/files/private-file.ts";
import { tempDir } from "../../../support/temp-dir.ts";

function secret(mode: number): string {
  const path = join(tempDir(), "secret");
  writeFileSync(path, "top");
  chmodSync(path, mode);
  return path;
}

test("reads a file that only its owner may read, through a link too", () => {
  const path = secret(0o400);
  symlinkSync(path, `${path}-link`);
  expect(readPrivateFile(`${path}-link`)).toBe("top");
});

test.each([0o640, 0o604, 0o620, 0o610])("refuses a file of mode %o, with its name and what to do", (mode) => {
  const path = secret(mode);
  expect(() => readPrivateFile(path)).toThrow(`${path} is accessible to other users; run chmod 600`);
});

test("refuses a file of another user than the reader and root", () => {
  const path = secret(0o600);
  const own = process.getuid?.() ?? 0;
  const read = (): string => readPrivateFile(path, own + 1);
  if (own === 0) expect(read()).toBe("top");
  else expect(read).toThrow("belongs to another user");
});
