import { closeSync } from "node:fs";
import { loadLibc } from "../../process/libc.ts";
import { netlinkAddress } from "./netlink.ts";

/** A non-blocking netlink(7) socket, with the calls to use it. */
export interface NetlinkSocket extends Disposable {
  readonly fd: number;
  readonly libc: NonNullable<ReturnType<typeof loadLibc>>;
}

const AF_NETLINK = 16;
const SOCK_RAW = 3;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2_000_000;

/**
 * Opens a socket of a netlink(7) protocol that receives the groups whose bits are set, of the first 32. Returns undefined if this
 * Node cannot call the C library, or such sockets or groups are unavailable.
 */
export function openNetlink(protocol: number, groups = 0): NetlinkSocket | undefined {
  const libc = loadLibc();
  if (libc === undefined) return undefined;
  const fd = libc.socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
  const close = (): void => {
    if (fd >= 0) closeSync(fd);
    libc[Symbol.dispose]();
  };
  const address = netlinkAddress(groups);
  if (fd >= 0 && libc.bind(fd, address, address.length) === 0) return { fd, libc, [Symbol.dispose]: close };
  close();
  return undefined;
}
