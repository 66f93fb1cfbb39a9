import { readdir, unlink } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf, HostError, toError } from "../../errors.ts";
import { OVERLAY_SOCKET } from "../../protocol/overlay/overlay.ts";
import type { Clock } from "../clock.ts";
import { connectControl } from "./control.ts";
import { readPidFile } from "../process/pid-file.ts";
import { probeSocket } from "../net/unix-socket.ts";

/**
 * Makes the overlay of a run directory delete its key and table and stop with all its flows; waits until it has
 * stopped. Returns whether there was one. An overlay of an older version only stops.
 * @throws {HostError} `overlay-failed` when it does not stop within `limitMs` milliseconds; as `probeSocket`.
 */
export async function endOverlay(runDir: string, clock: Clock, limitMs: number): Promise<boolean> {
  const path = join(runDir, OVERLAY_SOCKET);
  if ((await probeSocket(path)) !== "live") return false;
  const pid = await readPidFile(runDir, "overlay");
  let onEnd = (_how: "ended"): void => undefined;
  const ended = new Promise<"ended">((resolve) => {
    onEnd = resolve;
  });
  const over = new AbortController();
  const client = await connectControl(path, {}, () => onEnd("ended"));
  try {
    // The end of the process is the answer that counts.
    client.peer
      .request("forget", {}, over.signal)
      .catch(() => client.peer.request("drain", { deadlineMs: 0 }, over.signal))
      .catch(() => undefined);
    const late = clock.sleep(limitMs, over.signal).then(() => "late" as const);
    if ((await Promise.race([ended, late])) === "ended") return true;
    const who = pid === undefined ? "the overlay" : `the overlay with process id ${pid}`;
    throw new HostError("overlay-failed", `${who} in ${runDir} does not stop; stop it first`, { details: { runDir } });
  } finally {
    over.abort();
    client.close();
  }
}

/**
 * Removes the files from which an overlay would serve without its agent, and returns their paths. Keeps subdirectories:
 * the directory belongs to another user, who could redirect a recursive removal.
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
