/** A header of a tar, valid or not. */
export interface RawEntry {
  readonly path: string;
  readonly data?: Buffer | string;
  /** As in the header; by default a file, or a directory if the path ends in a slash. */
  readonly type?: string;
  readonly mode?: number;
  readonly link?: string;
  readonly prefix?: string;
  /** Applied to the header before its checksum. */
  readonly patch?: (header: Buffer) => void;
  /** Applied to the header after its checksum. */
  readonly spoil?: (header: Buffer) => void;
  /** Byte that fills the last block. */
  readonly filler?: number;
}

const BLOCK = 512;

/** Returns the members one after the other, without the end of the archive. */
export function rawMembers(entries: readonly RawEntry[]): Buffer {
  return Buffer.concat(
    entries.flatMap((entry) => {
      const data = Buffer.from(entry.data ?? "");
      const filler = Buffer.alloc((BLOCK - (data.length % BLOCK)) % BLOCK, entry.filler ?? 0);
      return [rawHeader(entry, data.length), data, filler];
    }),
  );
}

/** Returns a tar of members, with its end. */
export function rawTar(entries: readonly RawEntry[]): Buffer {
  return Buffer.concat([rawMembers(entries), Buffer.alloc(2 * BLOCK)]);
}

function rawHeader(entry: RawEntry, size: number): Buffer {
  const header = Buffer.alloc(BLOCK);
  const type = entry.type ?? (entry.path.endsWith("/") ? "5" : "0");
  const octal = (value: number, at: number, width: number): void => {
    header.write(`${value.toString(8).padStart(width - 1, "0")}\0`, at, "latin1");
  };
  header.write(entry.path, 0, 100, "latin1");
  octal(entry.mode ?? (type === "5" ? 0o755 : 0o644), 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(size, 124, 12);
  octal(0, 136, 12);
  header.write(type, 156, "latin1");
  header.write(entry.link ?? "", 157, 100, "latin1");
  header.write("ustar\u000000", 257, "latin1");
  header.write(entry.prefix ?? "", 345, 155, "latin1");
  entry.patch?.(header);
  header.write("        ", 148, "latin1"); // its own sum counts as blanks
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  entry.spoil?.(header);
  return header;
}
