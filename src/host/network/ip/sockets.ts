import { closeSync, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { fieldsOf, toCount } from "../../../lib/text/text-fields.ts";
import { address4 } from "./links.ts";
import type { Reader } from "../../reader.ts";

/** A listening TCP socket of /proc/net/tcp or tcp6. */
export interface Listener {
  readonly isLoopback: boolean;
  readonly port: number;
  readonly inode: number;
}

const LISTEN = "0A";
const SSH_PORT = 22;
const INIT_PID = "1";
const TABLES = ["/proc/net/tcp", "/proc/net/tcp6"] as const;
const MAX_TABLE_BYTES = 64 * 1024 * 1024;
const PIECE_BYTES = 64 * 1024;
const HALF_OPEN = [" 02 ", " 03 "];
const STATE_BYTES = 4;

export function parseListeners(text: string): readonly Listener[] {
  return text.split("\n").flatMap((line) => {
    const fields = fieldsOf(line);
    const [address = "", port = ""] = (fields[1] ?? "").split(":");
    const inode = toCount(fields[9]);
    if (fields[3] !== LISTEN || inode === undefined || !/^[0-9A-F]{4}$/.test(port)) return [];
    return [{ isLoopback: isLoopback(address), port: Number.parseInt(port, 16), inode }];
  });
}

/**
 * Reports whether all sockets of sshd listen on the loopback; undefined if the tables, or the owner of a socket on the SSH port,
 * cannot be read.
 */
export function isSshLocal(reader: Reader): boolean | undefined {
  const tables = TABLES.map((path) => reader.read(path));
  if (tables[0] === undefined) return undefined;
  const listeners = tables.flatMap((text) => parseListeners(text ?? ""));
  const exposed = listeners.filter((listener) => !listener.isLoopback);
  if (exposed.length === 0) return true;
  const { inodes, isComplete } = sshSockets(reader, exposed);
  if (exposed.some((listener) => inodes.has(listener.inode))) return false;
  return isComplete && !exposed.some(({ port }) => port === SSH_PORT) ? true : undefined;
}

/** Returns the sockets held by sshd, or by init on the SSH port to start sshd on demand. */
function sshSockets(reader: Reader, exposed: readonly Listener[]): { inodes: Set<number>; isComplete: boolean } {
  const inodes = new Set<number>();
  let isComplete = true;
  const onSshPort = new Set(exposed.filter(({ port }) => port === SSH_PORT).map(({ inode }) => inode));
  for (const pid of (reader.list("/proc") ?? []).filter((name) => /^\d+$/.test(name))) {
    const isSshd = reader.read(`/proc/${pid}/comm`)?.trim() === "sshd";
    if (!isSshd && (pid !== INIT_PID || onSshPort.size === 0)) continue;
    const held = socketsOf(reader, pid);
    if (held === undefined) isComplete = false;
    for (const inode of held ?? []) if (isSshd || onSshPort.has(inode)) inodes.add(inode);
  }
  return { inodes, isComplete };
}

function socketsOf(reader: Reader, pid: string): readonly number[] | undefined {
  return reader.list(`/proc/${pid}/fd`)?.flatMap((fd) => {
    const inode = toCount(/^socket:\[(\d+)\]$/.exec(reader.linkTarget(`/proc/${pid}/fd/${fd}`) ?? "")?.[1]);
    return inode === undefined ? [] : [inode];
  });
}

/** Matches 127.0.0.0/8, ::1 and ::ffff:127.0.0.0/104 in the format of /proc/net. */
function isLoopback(address: string): boolean {
  if (address.length === 8) return address4(address)?.startsWith("127.") ?? false;
  if (/^0{24}01000000$|^0{31}1$/.test(address)) return true;
  const mapped = /^0{16}(?:FFFF0000|0000FFFF)([0-9A-F]{8})$/.exec(address)?.[1];
  return address4(mapped)?.startsWith("127.") ?? false;
}

/**
 * Returns the number of half-open TCP connections (SYN sent or received); undefined if the table cannot be read. The kernel
 * returns one page at a time of a table that grows with the connections. So it is read on this thread, without waking another,
 * and yields between pieces.
 */
export async function countHalfOpen(root = "/"): Promise<number | undefined> {
  const count = await countTable(join(root, TABLES[0]));
  return count === undefined ? undefined : count + ((await countTable(join(root, TABLES[1]))) ?? 0);
}

async function countTable(path: string): Promise<number | undefined> {
  let fd: number | undefined;
  try {
    fd = openSync(path, "r");
    const buffer = Buffer.allocUnsafe(PIECE_BYTES);
    let held = 0;
    let count = 0;
    for (let total = 0; total < MAX_TABLE_BYTES;) {
      const wanted = buffer.length - held;
      const length = fill(fd, buffer.subarray(held));
      count += countHalfOpenIn(buffer.subarray(0, held + length));
      total += length;
      if (length < wanted) break;
      // Keep the last bytes, which may be the start of a state that continues in the next piece.
      held = STATE_BYTES - 1;
      buffer.copyWithin(0, buffer.length - held);
      await nextTurn();
    }
    return count;
  } catch {
    return undefined;
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

/** Reads until the buffer is full or the file ends. */
function fill(fd: number, buffer: Buffer): number {
  let length = 0;
  while (length < buffer.length) {
    const count = readSync(fd, buffer, length, buffer.length - length, null);
    if (count === 0) break;
    length += count;
  }
  return length;
}

/**
 * Counts the states SYN_SENT and SYN_RECV. No other field has two digits with a leading zero, so the bytes are searched without
 * splitting lines: as text, a busy machine's table would be megabytes of garbage every minute.
 */
function countHalfOpenIn(piece: Buffer): number {
  let count = 0;
  for (const state of HALF_OPEN) {
    for (let at = piece.indexOf(state); at !== -1; at = piece.indexOf(state, at + STATE_BYTES)) count += 1;
  }
  return count;
}
