import { readdir, unlink } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf, HostError, toError } from "../../errors.ts";

/**
 * Removes the files that an overlay would serve from without its agent, and returns their paths. The directory belongs to another user,
 * who could redirect a recursive removal: directories in it stay.
 */
export async function wipeOverlayState(overlayDir: string): Promise<readonly string[]> {
  const entries = await readdir(overlayDir, { withFileTypes: true }).catch((error: unknown) => {
    if (errnoOf(error) === "ENOENT") return [];
    throw new HostError("file-failed", `cannot read ${overlayDir}: ${toError(error).message}`, { cause: error });
  });
  const paths = entries.filter((entry) => !entry.isDirectory()).map(({ name }) => join(overlayDir, name));
  for (const path of paths) {
    await unlink(path).catch((error: unknown) => {
      if (errnoOf(error) === "ENOENT") return;
      throw new HostError("file-failed", `cannot remove ${path}: ${toError(error).message}`, { cause: error });
    });
  }
  return paths;
}
