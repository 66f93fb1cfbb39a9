const MAX_WAITING = 64;
/** Maximum bytes that wait in one session or socket. Further datagrams are dropped rather than delayed. */
const MAX_WAITING_BYTES = 256 * 1024;

/** Reports whether another datagram fits into a queue. */
export function hasRoom(datagrams: number, bytes: number, next: number): boolean {
  return datagrams < MAX_WAITING && bytes + next <= MAX_WAITING_BYTES;
}

/** Datagrams that wait for a connection, in order. */
export class DatagramQueue {
  #datagrams: Buffer[] = [];
  #bytes = 0;

  /** Appends a datagram; false if it must be dropped. */
  add(datagram: Buffer): boolean {
    if (!hasRoom(this.#datagrams.length, this.#bytes, datagram.length)) return false;
    this.#datagrams.push(datagram);
    this.#bytes += datagram.length;
    return true;
  }

  /** Removes and returns all datagrams. */
  takeAll(): readonly Buffer[] {
    const all = this.#datagrams;
    this.#datagrams = [];
    this.#bytes = 0;
    return all;
  }
}
