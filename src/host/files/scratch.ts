import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Creates an empty directory in the system's directory for temporary files; `stack` removes it with its contents. */
export async function scratchDirectory(prefix: string, stack: AsyncDisposableStack): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), prefix));
  stack.defer(() => rm(directory, { recursive: true, force: true }));
  return directory;
}
