import { posix } from "node:path";

/** A file or symbolic link to install. */
export type Entry =
  | { readonly path: string; readonly mode: number; readonly data: Buffer }
  | { readonly path: string; readonly link: string };

const BLOCK = 512;
const RECORD = 20 * BLOCK;

/** A ustar archive of the entries and the directories they need: sorted, of root, of one time, so that the same entries give the same bytes. */
export function tarOf(entries: readonly Entry[], prefix: "" | "./", time: number): Buffer {
  const folders = new Set<string>();
  for (const { path } of entries) {
    for (let at = posix.dirname(path); at !== "."; at = posix.dirname(at)) folders.add(at);
  }
  const all = new Map<string, Entry | undefined>([...folders].map((path) => [`${path}/`, undefined]));
  for (const entry of entries) {
    if (all.has(entry.path)) throw new Error(`${entry.path} is there twice`);
    all.set(entry.path, entry);
  }
  const parts = prefix === "" ? [] : [header({ path: prefix, type: "5", mode: 0o755, size: 0, time })];
  for (const [path, entry] of [...all].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const name = `${prefix}${path}`;
    if (entry === undefined) parts.push(header({ path: name, type: "5", mode: 0o755, size: 0, time }));
    else if ("link" in entry) {
      parts.push(header({ path: name, type: "2", mode: 0o777, size: 0, time, link: entry.link }));
    } else {
      const { mode, data } = entry;
      parts.push(header({ path: name, type: "0", mode, size: data.length, time }), data, padding(data.length, BLOCK));
    }
  }
  const size = parts.reduce((total, { length }) => total + length, 2 * BLOCK);
  return Buffer.concat([...parts, Buffer.alloc(2 * BLOCK), padding(size, RECORD)]);
}

interface Header {
  readonly path: string;
  readonly type: "0" | "2" | "5";
  readonly mode: number;
  readonly size: number;
  readonly time: number;
  readonly link?: string;
}

function header({ path, type, mode, size, time, link = "" }: Header): Buffer {
  const block = Buffer.alloc(BLOCK);
  const text = (value: string, at: number, width: number): void => {
    if (Buffer.byteLength(value) > width) throw new Error(`${value} is too long for its archive`);
    block.write(value, at);
  };
  const octal = (value: number, at: number, width: number): void => {
    text(`${value.toString(8).padStart(width - 1, "0")}\0`, at, width);
  };
  text(path, 0, 100);
  octal(mode, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(size, 124, 12);
  octal(time, 136, 12);
  text(" ".repeat(8), 148, 8); // its own sum counts as blanks
  text(type, 156, 1);
  text(link, 157, 100);
  text("ustar\u000000", 257, 8);
  text("root", 265, 32);
  text("root", 297, 32);
  const sum = block.reduce((total, byte) => total + byte, 0);
  text(`${sum.toString(8).padStart(6, "0")}\0 `, 148, 8);
  return block;
}

/** An ar(5) archive, as a Debian package is one. */
export function arOf(members: readonly { readonly name: string; readonly data: Buffer }[], time: number): Buffer {
  const parts = members.flatMap(({ name, data }) => [
    Buffer.from(
      `${name.padEnd(16)}${String(time).padEnd(12)}${"0".padEnd(6)}${"0".padEnd(6)}${"100644".padEnd(8)}${String(data.length).padEnd(10)}\`\n`,
    ),
    data,
    Buffer.from(data.length % 2 === 0 ? "" : "\n"),
  ]);
  return Buffer.concat([Buffer.from("!<arch>\n"), ...parts]);
}

/** Bytes that the content of the entries takes. */
export function contentSize(entries: readonly Entry[]): number {
  return entries.reduce((total, entry) => total + ("data" in entry ? entry.data.length : 0), 0);
}

function padding(size: number, unit: number): Buffer {
  return Buffer.alloc((unit - (size % unit)) % unit);
}
