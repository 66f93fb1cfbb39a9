import { closeSync, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { fieldsOf, toCount } from "../lib/text-fields.ts";
import { address4 } from "./links.ts";
import type { Reader } from "./reader.ts";

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
const [NEWLINE, COLON, SPACE, ZERO, TWO, THREE] = [0x0a, 0x3a, 0x20, 0x30, 0x32, 0x33];

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
 * Whether every socket on which sshd listens is on the loopback; undefined when it cannot be known, because the tables or
 * the owner of a socket on the SSH port cannot be read.
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

/** Sockets that sshd holds, or that init holds on the SSH port to start sshd on demand. */
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

/** 127.0.0.0/8, ::1 and ::ffff:127.0.0.0/104, as /proc/net prints them. */
function isLoopback(address: string): boolean {
  if (address.length === 8) return address4(address)?.startsWith("127.") ?? false;
  if (/^0{24}01000000$|^0{31}1$/.test(address)) return true;
  const mapped = /^0{16}(?:FFFF0000|0000FFFF)([0-9A-F]{8})$/.exec(address)?.[1];
  return address4(mapped)?.startsWith("127.") ?? false;
}

/**
 * How many TCP connections are half open (SYN sent or received); undefined when the table cannot be read. The table grows
 * with the connections and the kernel gives one page at a time, so it is read on this thread, which costs nobody a
 * wake-up, with a turn for everything else between pieces.
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
      const lines = countLines(buffer.subarray(0, held + length));
      total += length;
      count += lines.halfOpen;
      if (length < wanted) break;
      buffer.copyWithin(0, lines.end);
      // A line that fills a whole piece is not the kernel's, and is dropped.
      held = (buffer.length - lines.end) % buffer.length;
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

/** Counts in the bytes themselves: as text, a table of ten thousand would be garbage of many megabytes each time. */
function countLines(piece: Buffer): { readonly halfOpen: number; readonly end: number } {
  let halfOpen = 0;
  let start = 0;
  for (let end = piece.indexOf(NEWLINE); end !== -1; end = piece.indexOf(NEWLINE, start)) {
    if (isHalfOpen(piece, start, end)) halfOpen += 1;
    start = end + 1;
  }
  return { halfOpen, end: start };
}

/** Whether the state, the fourth field (`  12: LOCAL:PORT REMOTE:PORT ST …`), is SYN_SENT or SYN_RECV. */
function isHalfOpen(piece: Buffer, start: number, end: number): boolean {
  const number = piece.indexOf(COLON, start);
  const local = piece.indexOf(SPACE, number + 2);
  const remote = piece.indexOf(SPACE, local + 1);
  if (number === -1 || local === -1 || remote === -1 || remote + 2 >= end) return false;
  return piece[remote + 1] === ZERO && (piece[remote + 2] === TWO || piece[remote + 2] === THREE);
}
