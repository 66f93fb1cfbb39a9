import { openNetlink } from "../netlink/netlink-socket.ts";

/** Knows whether anything that ip(8) shows of IPv4 in this network namespace has changed since the watch began. */
export interface ChangeWatch extends Disposable {
  /** False only when the kernel has told of nothing. */
  hasChanged(): boolean;
}

/** Undefined where this Node cannot call the C library, or the kernel cannot be listened to. */
export type WatchChanges = () => ChangeWatch | undefined;

const NETLINK_ROUTE = 0;
const EAGAIN = 11;
/** Groups of linux/rtnetlink.h: link, IPv4 address, IPv4 route, IPv4 rule, and next hops, which routes may name. */
const GROUPS = 0x1 + 0x10 + 0x40 + 0x80 + 0x8000_0000;

/** Has the kernel tell of every change: it does before the call returns that makes one. */
export const watchChanges: WatchChanges = () => {
  const socket = openNetlink(NETLINK_ROUTE, GROUPS);
  if (socket === undefined) return undefined;
  const { fd, libc } = socket;
  const buffer = new Uint8Array(1);
  let isQuiet = true;
  return {
    hasChanged() {
      // Whatever is not plainly silence may be a change, one of which the kernel had no room to tell among them.
      isQuiet &&= libc.recv(fd, buffer, BigInt(buffer.length), 0) < 0n && libc.errno() === EAGAIN;
      return !isQuiet;
    },
    [Symbol.dispose]: () => socket[Symbol.dispose](),
  };
};

/** A look that is begun before it is asked for, beside something that takes longer. It is good as long as nothing has changed since. */
export class LookAhead<T> {
  readonly #watchChanges: WatchChanges;
  #kept: { readonly watch: ChangeWatch; readonly seen: T } | undefined;

  constructor(watchChanges: WatchChanges) {
    this.#watchChanges = watchChanges;
  }

  /** Looks, and keeps what was seen; keeps nothing where changes go unnoticed or the look fails. Never rejects. */
  async begin(look: () => Promise<T>): Promise<void> {
    this.drop();
    const watch = this.#watchChanges();
    if (watch === undefined) return;
    try {
      const seen = await look();
      this.drop();
      this.#kept = { watch, seen };
    } catch {
      // Whoever asks looks anew, and is told why that cannot be.
      watch[Symbol.dispose]();
    }
  }

  /** What was seen, once, and only if it is still so at this moment. */
  take(): T | undefined {
    const kept = this.#kept;
    const isGood = kept?.watch.hasChanged() === false;
    this.drop();
    return isGood ? kept.seen : undefined;
  }

  /** Forgets it. */
  drop(): void {
    this.#kept?.watch[Symbol.dispose]();
    this.#kept = undefined;
  }
}
