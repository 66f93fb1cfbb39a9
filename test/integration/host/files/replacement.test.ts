import { chownSync, mkdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { beginReplacement } from "../../../../src/host/files/replacement.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const OWNER = 1234;
const PARTS = { folders: ["keys"], files: ["name"], databases: [] };

test("staged files get the owner of the directory, but not what a link among them names", async () => {
  const root = tempDir();
  const dir = join(root, "data");
  const secret = join(root, "secret");
  mkdirSync(dir);
  chownSync(dir, OWNER, OWNER);
  writeFileSync(secret, "");
  const replacement = await beginReplacement(dir, PARTS);
  await replacement.write("name", "n");
  await replacement.write("keys/one", "k");
  symlinkSync(secret, replacement.pathOf("keys/link"));
  await replacement.seal();
  const ownerOf = (path: string): number => statSync(path).uid;
  expect(["", "name", "keys", "keys/one"].map((name) => ownerOf(replacement.pathOf(name)))).toEqual(
    Array.from({ length: 4 }, () => OWNER),
  );
  expect(ownerOf(secret)).toBe(0);
});
