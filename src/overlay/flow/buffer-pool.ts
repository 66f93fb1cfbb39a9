/** Size of the buffer that a flow starts with and keeps while it moves little; most of an idle flow's memory is this buffer. */
export const SMALL_BYTES = 2 * 1024;

const MAX_KEPT = 512;

/** Reuses the small buffers of ended flows: allocating them is a large part of the cost of a short flow. */
export interface BufferPool {
  take(): Buffer;
  /** Returns a buffer that nothing reads into or writes from any more. */
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
