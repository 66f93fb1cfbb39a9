import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const source = (path: string): string => new URL(`../../../src/${path}`, import.meta.url).href;

/**
 * Runs the body of an async function in a process whose root for `files` is a private disk of 256 KiB, and returns its result. In its
 * scope: `files`, `root`, `openDatabase`, `transaction`, and `makeReadOnly()`.
 */
export async function onSmallDisk(body: string): Promise<unknown> {
  const directory = mkdtempSync(join(tmpdir(), "hf-disk-"));
  const script = join(directory, "script.mjs");
  const disk = join(directory, "disk");
  try {
    writeFileSync(
      script,
      `import { execFileSync } from "node:child_process";
      import { hostFiles } from ${JSON.stringify(source("host/files/files.ts"))};
      import { openDatabase, transaction } from ${JSON.stringify(source("host/files/database.ts"))};
      const root = ${JSON.stringify(disk)};
      const files = hostFiles(root);
      const makeReadOnly = () => execFileSync("mount", ["-o", "remount,ro", root]);
      const run = async () => {${body}};
      console.log(JSON.stringify(await run()));`,
    );
    const inside = `mkdir ${disk} && mount -t tmpfs -o size=256k tmpfs ${disk} && exec "$0" "$1"`;
    const { stdout } = await promisify(execFile)("unshare", ["-rm", "sh", "-c", inside, process.execPath, script]);
    return JSON.parse(stdout) as unknown;
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
