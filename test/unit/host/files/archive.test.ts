import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { readGzipped, writeGzipped } from "../../../../src/host/files/archive.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const CONTENT = Buffer.from(Array.from({ length: 300 }, (_, at) => `${(at * 7919) % 1013}`).join(" "));

async function read(path: string): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of readGzipped(path)) parts.push(part);
  return Buffer.concat(parts);
}

test("a gzipped stream is read as it was written", async () => {
  const path = join(tempDir(), "x.gz");
  await writeGzipped(path, [CONTENT.subarray(0, 100), CONTENT.subarray(100)], new AbortController().signal);
  expect(await read(path)).toEqual(CONTENT);
});

test("a gzipped file is refused wherever it is cut, and a wrong bit too", async () => {
  const path = join(tempDir(), "x.gz");
  const whole = gzipSync(CONTENT);
  for (let length = 0; length < whole.length; length += 1) {
    writeFileSync(path, whole.subarray(0, length));
    await expect(read(path), String(length)).rejects.toMatchObject({ code: length < 2 ? "not-gzip" : "damaged" });
  }
  const changed = Buffer.from(whole);
  changed[whole.length - 6] = (changed[whole.length - 6] ?? 0) ^ 1;
  writeFileSync(path, changed);
  await expect(read(path)).rejects.toMatchObject({ code: "damaged" });
});
