import { constants } from "node:os";
import { openNetlink } from "./netlink-socket.ts";

/** Receives notifications of one netlink protocol's groups. */
export interface NetlinkListener {
  /**
   * Passes on received datagrams, each valid until the callback returns, or undefined if some were lost; later arrivals are
   * announced again.
   */
  drain(onDatagram: (datagram: DataView | undefined) => void): void;
  close(): void;
}

export interface NetlinkListenerOptions {
  /** Protocol number by netlink(7): 0 for routes, 12 for netfilter. */
  readonly protocol: number;
  /** A bit for each of the first 32 groups. */
  readonly groups: number;
  /** Called when data may have arrived; once until it is drained. */
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
 * Opens a listener. Node cannot wait for a foreign socket, so the kernel sends a signal on arrival (fcntl(2)), once until the
 * socket is drained. The signal is SIGURG, which is ignored by default. Every listener gets each signal, so some are spurious. If
 * a signal is lost, the datagrams are found at the next drain. Returns undefined if this Node cannot call the C library, or the
 * groups are unavailable.
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
    // Changes may come by the thousand, and one signal covers all of them.
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
      // Armed before reading: arrivals after the last read must be announced.
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
