import { closeSync, constants, fstatSync, openSync, readFileSync, type Stats } from "node:fs";
import { open } from "node:fs/promises";

/** Opening does not block on a pipe, and a terminal does not become the controlling one. */
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;

/**
 * Returns the bytes of a regular file; follows links.
 * @throws the error of open(2), or an error with code `EISDIR`, `ENOTREG` (a pipe, a device) or `EFBIG`
 */
export async function readRegularFile(path: string, maxBytes: number): Promise<Buffer> {
  const file = await open(path, FLAGS);
  try {
    check(path, await file.stat(), maxBytes);
    return await file.readFile();
  } finally {
    await file.close();
  }
}

/** Synchronous form of `readRegularFile`. */
export function readRegularFileSync(path: string, maxBytes: number): Buffer {
  const fd = openSync(path, FLAGS);
  try {
    check(path, fstatSync(fd), maxBytes);
    return readFileSync(fd);
  } finally {
    closeSync(fd);
  }
}

function check(path: string, found: Stats, maxBytes: number): void {
  if (found.isDirectory()) throw coded("EISDIR", `${path} is a directory`);
  if (!found.isFile()) throw coded("ENOTREG", `${path} is not a regular file`);
  if (found.size > maxBytes) throw coded("EFBIG", `${path} is larger than ${maxBytes} bytes`);
}

function coded(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}

/** Reports whether an error code of `readRegularFile` means that the entry is not a regular file or is too large. */
export function isNoRegularFile(code: string | undefined): boolean {
  // open(2) itself refuses a socket, or a device without a driver.
  return code !== undefined && ["EISDIR", "ENOTREG", "EFBIG", "ENXIO", "ENODEV"].includes(code);
}
