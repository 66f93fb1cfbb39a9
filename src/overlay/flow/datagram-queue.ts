const MAX_WAITING = 64;
/** What may wait, in one session or one socket: beyond either bound datagrams are dropped rather than delayed. */
export const MAX_WAITING_BYTES = 256 * 1024;

/** Whether another datagram may join a queue. */
export function hasRoom(datagrams: number, bytes: number, next: number): boolean {
  return datagrams < MAX_WAITING && bytes + next <= MAX_WAITING_BYTES;
}
