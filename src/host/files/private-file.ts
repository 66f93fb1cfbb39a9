import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";
import { HostError, InputError, toError } from "../../errors.ts";

const MAX_BYTES = 64 * 1024;

/**
 * Reads a file that holds a secret. The reader or root must own it, and no other user may read or write it. Checks the opened
 * file, so the path may be a link.
 * @throws {InputError} `bad-secret-file`; {HostError} `storage-failed`
 */
export function readPrivateFile(path: string, uid = process.getuid?.()): string {
  let fd: number;
  try {
    // Without O_NONBLOCK, opening a pipe would block.
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    throw new HostError("storage-failed", `cannot open ${path}: ${toError(error).message}`, { cause: error });
  }
  try {
    const found = fstatSync(fd);
    if (!found.isFile()) throw refusal(path, "is not a regular file");
    if (found.uid !== 0 && found.uid !== uid) throw refusal(path, "belongs to another user");
    if ((found.mode & 0o077) !== 0) throw refusal(path, "is accessible to other users; run chmod 600");
    if (found.size > MAX_BYTES) throw refusal(path, `is larger than ${MAX_BYTES} bytes`);
    return readFileSync(fd, "utf8");
  } finally {
    closeSync(fd);
  }
}

const refusal = (path: string, why: string): InputError => new InputError("bad-secret-file", `${path} ${why}`);
