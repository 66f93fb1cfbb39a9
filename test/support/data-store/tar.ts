/** An entry of a tar: a file, a directory (path ends in a slash), or a symbolic link. */
export interface TarEntry {
  readonly path: string;
  readonly data?: Buffer | string;
  readonly mode?: number;
  readonly link?: string;
}

const BLOCK = 512;

/** A tar of the ustar kind (tar(5)); owner root, time 0, so that the same entries give the same bytes. */
export function tar(entries: readonly TarEntry[]): Buffer {
  const parts = entries.flatMap((entry) => {
    const data = Buffer.from(entry.data ?? "");
    return [header(entry, data.length), data, Buffer.alloc((BLOCK - (data.length % BLOCK)) % BLOCK)];
  });
  return Buffer.concat([...parts, Buffer.alloc(2 * BLOCK)]);
}

function header(entry: TarEntry, size: number): Buffer {
  const kind = entry.link !== undefined ? "2" : entry.path.endsWith("/") ? "5" : "0";
  const block = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, width: number): void => {
    block.write(`${value.toString(8).padStart(width - 1, "0")}\0`, at);
  };
  block.write(entry.path, 0, 100);
  octal(entry.mode ?? (kind === "5" ? 0o755 : 0o644), 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(size, 124, 12);
  octal(0, 136, 12);
  block.write("        ", 148); // its own sum counts as blanks
  block.write(kind, 156);
  block.write(entry.link ?? "", 157, 100);
  block.write("ustar\u000000", 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}
