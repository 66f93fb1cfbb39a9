import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import { afterAll, beforeAll } from "vitest";
import { tempDir } from "./temp-dir.ts";

/** Makes one bundle of a program for the tests of the file that calls it, and gives its path. */
export function bundled(entryPoint: string): string {
  const dir = mkdtempSync(join(tmpdir(), "hf-bundle-"));
  const outfile = join(dir, "bundle.mjs");
  beforeAll(async () => bundle(entryPoint, outfile));
  afterAll(() => rmSync(dir, { recursive: true }));
  return outfile;
}

/** Makes one bundle of a program for the running test, and gives its path. */
export async function bundledOnce(entryPoint: string): Promise<string> {
  const outfile = join(tempDir(), "bundle.mjs");
  await bundle(entryPoint, outfile);
  return outfile;
}

/** It starts in a quarter of the time that many modules take, each of which has its types erased first. */
async function bundle(entryPoint: string, outfile: string): Promise<void> {
  await build({
    entryPoints: [entryPoint],
    outfile,
    bundle: true,
    platform: "node",
    target: "node26",
    format: "esm",
    // Packages written as CommonJS ask for `require`, which an ES module does not have by itself.
    banner: { js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);' },
  });
}
