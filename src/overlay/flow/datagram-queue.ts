const MAX_WAITING = 64;
/** Maximum bytes that wait in one session or socket. Further datagrams are dropped rather than delayed. */
const MAX_WAITING_BYTES = 256 * 1024;

/** Reports whether another datagram fits into a queue. */
export function hasRoom(datagrams: number, bytes: number, next: number): boolean {
  return datagrams < MAX_WAITING && bytes + next <= MAX_WAITING_BYTES;
}
