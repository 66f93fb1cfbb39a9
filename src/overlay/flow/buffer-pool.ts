/** What a flow reads with at first, and for as long as it moves little: an idle one keeps it, so most of what that costs is this. */
export const SMALL_BYTES = 2 * 1024;

const MAX_KEPT = 512;

/** Small buffers of flows that have ended, for those that begin: allocating them is a good part of what a short flow costs. */
export interface BufferPool {
  take(): Buffer;
  /** Only for a buffer that nothing reads into or writes from any more. */
  give(buffer: Buffer): void;
}

export function bufferPool(): BufferPool {
  const kept: Buffer[] = [];
  return {
    take: () => kept.pop() ?? Buffer.allocUnsafeSlow(SMALL_BYTES),
    give(buffer) {
      if (buffer.length === SMALL_BYTES && kept.length < MAX_KEPT) kept.push(buffer);
    },
  };
}
