import { constants } from "node:os";
import { openNetlink } from "./netlink-socket.ts";

/** Hears what the kernel tells the groups of one netlink protocol. */
export interface NetlinkListener {
  /** Hands over what has arrived, each good until the call returns, or undefined where some was lost; what arrives from here on is announced. */
  drain(onDatagram: (datagram: DataView | undefined) => void): void;
  close(): void;
}

export interface NetlinkListenerOptions {
  /** As in netlink(7): 0 for routes, 12 for netfilter. */
  readonly protocol: number;
  /** A bit for each of the first 32 groups. */
  readonly groups: number;
  /** Something may have arrived; told once until it is drained. */
  readonly onArrival: () => void;
}

const F_SETFL = 4;
const F_SETOWN = 8;
const F_SETSIG = 10;
const O_NONBLOCK = 0o4000;
const O_ASYNC = 0o20_000;
const ENOBUFS = 105;
const MAX_DATAGRAMS = 4096;

/**
 * Node cannot wait for a socket that it did not make, so the kernel says by a signal that something has arrived (fcntl(2)),
 * once until it is drained. SIGURG, because a program that does not listen for it ignores it; every listener hears each, so
 * some come for nothing. Should one be lost, the datagrams are still there at the next look.
 * Undefined where this Node cannot call the C library, or the machine has no such groups for us.
 */
export function listenNetlink({ protocol, groups, onArrival }: NetlinkListenerOptions): NetlinkListener | undefined {
  const socket = openNetlink(protocol, groups);
  if (socket === undefined) return undefined;
  const { fd, libc } = socket;
  let isArmed = false;
  const arm = (): void => {
    if (!isArmed) isArmed = libc.fcntl(fd, F_SETFL, O_NONBLOCK | O_ASYNC) === 0;
  };
  const onSignal = (): void => {
    if (!isArmed) return;
    // Changes can come by the thousand, and one signal says as much as all of them.
    isArmed = libc.fcntl(fd, F_SETFL, O_NONBLOCK) !== 0;
    onArrival();
  };
  process.on("SIGURG", onSignal);
  libc.fcntl(fd, F_SETOWN, process.pid);
  libc.fcntl(fd, F_SETSIG, constants.signals.SIGURG);
  arm();
  const buffer = new Uint8Array(32 * 1024);
  return {
    drain(onDatagram) {
      // Before reading: what arrives after the last one read must be announced.
      arm();
      for (let count = 0; count < MAX_DATAGRAMS; count += 1) {
        const length = Number(libc.recv(fd, buffer, BigInt(buffer.length), 0));
        if (length > 0) onDatagram(new DataView(buffer.buffer, 0, length));
        else if (length < 0 && libc.errno() === ENOBUFS) onDatagram(undefined);
        else break;
      }
    },
    close() {
      socket[Symbol.dispose]();
      process.off("SIGURG", onSignal);
    },
  };
}
