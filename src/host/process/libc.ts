import { closeSync } from "node:fs";
import { cleanMappings } from "../proc.ts";
import type { Reader } from "../reader.ts";

const AF_UNIX = 1;
const SOCK_DGRAM = 2;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2_000_000;
const MSG_NOSIGNAL = 0x4000;

/**
 * Sends the service manager a state such as `READY=1` (sd_notify(3)). `socketPath` is the value of NOTIFY_SOCKET, a path or an
 * abstract name. Returns false if sending failed; use `systemd-notify` then.
 */
export function sdNotify(socketPath: string, state: string): boolean {
  const address = unixAddress(socketPath);
  if (address === undefined) return false;
  using libc = loadLibc();
  if (libc === undefined) return false;
  const fd = libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  try {
    const text = Buffer.from(state);
    const sent = libc.sendto(fd, text, BigInt(text.length), MSG_NOSIGNAL, address, address.length);
    return sent === BigInt(text.length);
  } finally {
    closeSync(fd);
  }
}

const MADV_DONTNEED = 4;

/**
 * Returns memory to the kernel: memory that the C library holds free (malloc_trim(3)), and pages of the runtime's own file
 * (madvise(2)). A start touches twice as many of these pages as are used later; a page that is used again is mapped from the page
 * cache. Returns false if the C library cannot be called.
 */
export function trimMemory(reader: Pick<Reader, "read">): boolean {
  try {
    const { functions, lib } = process.getBuiltinModule("node:ffi").dlopen(null, {
      malloc_trim: { return: "i32", arguments: ["u64"] },
      madvise: { return: "i32", arguments: ["u64", "u64", "i32"] },
    });
    functions.malloc_trim(0n);
    for (const { start, length } of cleanMappings(reader.read("/proc/self/smaps") ?? "", process.execPath)) {
      functions.madvise(start, length, MADV_DONTNEED);
    }
    lib.close();
    return true;
  } catch {
    return false;
  }
}

/** Returns the C library calls that Node does not offer; undefined if this Node cannot call the C library. */
export function loadLibc() {
  try {
    const ffi = process.getBuiltinModule("node:ffi");
    const { functions, lib } = ffi.dlopen(null, {
      socket: { return: "i32", arguments: ["i32", "i32", "i32"] },
      fcntl: { return: "i32", arguments: ["i32", "i32", "i32"] },
      bind: { return: "i32", arguments: ["i32", "buffer", "u32"] },
      recv: { return: "i64", arguments: ["i32", "buffer", "u64", "i32"] },
      sendto: { return: "i64", arguments: ["i32", "buffer", "u64", "i32", "buffer", "u32"] },
      __errno_location: { return: "pointer", arguments: [] },
    });
    return {
      ...functions,
      errno: (): number => ffi.getInt32(functions.__errno_location()),
      [Symbol.dispose]: (): void => lib.close(),
    };
  } catch {
    return undefined;
  }
}

/** Returns the struct sockaddr_un (unix(7)) of a path or an abstract name (`@…`); undefined if the name is too long or neither. */
export function unixAddress(name: string): Uint8Array | undefined {
  const bytes = Buffer.from(name);
  if (bytes.length < 2 || bytes.length > 107 || (name[0] !== "/" && name[0] !== "@")) return undefined;
  if (name[0] === "@") bytes[0] = 0;
  // A path ends with a zero byte; the length of the address delimits an abstract name.
  return new Uint8Array([1, 0, ...bytes, ...(name[0] === "/" ? [0] : [])]);
}
