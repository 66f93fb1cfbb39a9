import { closeSync, constants, fstatSync, openSync, readFileSync, type Stats } from "node:fs";
import { open } from "node:fs/promises";

/** Nobody waits for the other end of a pipe, and a terminal does not become ours. */
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;

/**
 * The bytes of a regular file; links are followed.
 * @throws what opening it threw, or an error with code `EISDIR`, `ENOTREG` (a pipe, a device) or `EFBIG`
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

/** The same, at once. */
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

/** Whether an error of `readRegularFile` says that something else than a readable file of its size is there. */
export function isNoRegularFile(code: string | undefined): boolean {
  // A socket, or a device without a driver, cannot even be opened.
  return code !== undefined && ["EISDIR", "ENOTREG", "EFBIG", "ENXIO", "ENODEV"].includes(code);
}
