import { closeSync } from "node:fs";
import { Socket } from "node:net";
import { loadLibc } from "./libc.ts";

/** A pipe(7) for a program's standard input. */
export interface Pipe extends Disposable {
  /** For the program; it is closed here once that has been started. */
  readonly readEnd: number;
  readonly input: Socket;
}

/** Makes a pipe that takes so many bytes before anybody reads them, if it may. Undefined where this Node cannot call the C library. */
export type MakePipe = (bytes: number) => Pipe | undefined;

const O_CLOEXEC = 0o2_000_000;
const F_SETPIPE_SZ = 1031;
/** As much as the kernel lets anybody have: `fs.pipe-max-size`. */
const MAX_BYTES = 1024 * 1024;

/** What Node gives a program to read is a socket, which no program can open by its path. */
export const makePipe: MakePipe = (bytes) => {
  using libc = loadLibc();
  const ends = Buffer.alloc(8);
  if (libc === undefined || libc.pipe2(ends, O_CLOEXEC) !== 0) return undefined;
  const [readEnd, writeEnd] = [ends.readInt32LE(0), ends.readInt32LE(4)];
  // Where it is refused the pipe is filled piece by piece.
  libc.fcntl(writeEnd, F_SETPIPE_SZ, Math.min(bytes, MAX_BYTES));
  const input = new Socket({ fd: writeEnd, readable: false, writable: true });
  return { readEnd, input, [Symbol.dispose]: () => closeSync(readEnd) };
};
