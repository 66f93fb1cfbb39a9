const BLOCK = 512;
const MAX_NAME = 100;

/** Returns the ustar header (tar(5)) of a regular file owned by root, mode 0600. */
export function tarHeader(name: string, sizeBytes: number, modifiedAt: number): Buffer {
  if (Buffer.byteLength(name) > MAX_NAME) throw new RangeError(`${name} is too long a name for an archive`);
  const block = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, width: number): void => {
    block.write(`${value.toString(8).padStart(width - 1, "0")}\0`, at);
  };
  block.write(name, 0, MAX_NAME);
  octal(0o600, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(sizeBytes, 124, 12);
  octal(Math.max(0, Math.floor(modifiedAt / 1000)), 136, 12);
  block.write("        ", 148); // its own sum counts as blanks
  block.write("0", 156);
  block.write("ustar\u000000", 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

/** Returns the padding after a file, up to the next block. */
export function tarPadding(sizeBytes: number): Buffer {
  return Buffer.alloc((BLOCK - (sizeBytes % BLOCK)) % BLOCK);
}

/** End-of-archive marker. */
export const tarEnd = (): Buffer => Buffer.alloc(2 * BLOCK);
