import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { volumeKeys } from "../../../../../src/controller/channel/keys/volume-keys.ts";
import { hostFiles } from "../../../../../src/host/files/files.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

test("each volume of each node has a key of its own, the same after every start", async () => {
  const path = join(tempDir(), "volumes.key");
  const first = await volumeKeys(hostFiles(), path);
  const all = [first.of("a", "data"), first.of("b", "data"), first.of("a", "logs")];
  expect(new Set(all).size).toBe(3);
  for (const key of all) expect(Buffer.from(key, "base64url")).toHaveLength(32);
  expect(statSync(path).mode & 0o777).toBe(0o600);
  const again = await volumeKeys(hostFiles(), path);
  expect(again.of("a", "data")).toBe(all[0]);
  expect(all).not.toContain(readFileSync(path, "utf8").trim());
});

test("a damaged key is not replaced, since what it locks would be lost", async () => {
  const path = join(tempDir(), "volumes.key");
  writeFileSync(path, "short\n");
  await expect(volumeKeys(hostFiles(), path)).rejects.toMatchObject({ code: "key-damaged" });
  expect(readFileSync(path, "utf8")).toBe("short\n");
});
