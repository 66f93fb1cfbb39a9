import { InputError } from "../../errors.ts";

/** An entry of an archive. */
export interface TarMember {
  /** Relative, without a leading `./` and a trailing slash. */
  readonly path: string;
  readonly kind: "file" | "directory";
  readonly size: number;
  readonly isExecutable: boolean;
}

export interface TarLimits {
  /** Total size of all files, in bytes. */
  readonly maxBytes: number;
  readonly maxMembers: number;
}

const BLOCK = 512;
const MAX_DEPTH = 8;
/** Archives are padded to a multiple of their record size, 10 KiB by default. */
const MAX_PADDING = 1024 * 1024;
const NAME = /^[A-Za-z0-9@_+~-][A-Za-z0-9@._+~-]{0,127}$/;

const KINDS: Readonly<Record<string, string>> = {
  "1": "a hard link",
  "2": "a symbolic link",
  "3": "a character device",
  "4": "a block device",
  "6": "a pipe",
  "7": "a file of an old kind",
  g: "a pax header for all members",
  x: "a pax header",
  L: "a long name of GNU tar",
  K: "a long link of GNU tar",
  S: "a sparse file",
  V: "a volume label",
  M: "a continued file",
  D: "a directory listing of GNU tar",
};

/**
 * Validates an archive while it streams: ustar(5) with regular files and directories only, each name once, and no stray bytes. Each
 * header is checked before the bytes after it pass, so the writer never sees unchecked content.
 */
export class TarFilter {
  readonly #limits: TarLimits;
  readonly #members = new Map<string, TarMember>();
  #header = Buffer.alloc(0);
  /** Bytes left in the current file, without padding. */
  #left = 0;
  #padding = 0;
  #bytes = 0;
  #zeroBlocks = 0;
  #tail = 0;

  constructor(limits: TarLimits) {
    this.#limits = limits;
  }

  get members(): readonly TarMember[] {
    return [...this.#members.values()];
  }

  /** Returns the bytes of a chunk that may pass. @throws {InputError} with the code of the violation. */
  pass(bytes: Buffer): Buffer[] {
    const passed: Buffer[] = [];
    for (let at = 0; at < bytes.length;) {
      if (this.#left > 0 || this.#padding > 0) {
        const isData = this.#left > 0;
        const count = Math.min(bytes.length - at, isData ? this.#left : this.#padding);
        const piece = bytes.subarray(at, at + count);
        if (isData) this.#left -= count;
        else this.#fill(piece, count);
        passed.push(piece);
        at += count;
        continue;
      }
      const missing = BLOCK - this.#header.length;
      this.#header = Buffer.concat([this.#header, bytes.subarray(at, at + missing)]);
      at += missing;
      if (this.#header.length < BLOCK) break;
      const block = this.#header;
      this.#header = Buffer.alloc(0);
      this.#take(block);
      passed.push(block);
    }
    return passed;
  }

  /** Checks that the archive is complete. @throws {InputError} `archive-truncated` */
  end(): void {
    if (this.#left > 0 || this.#padding > 0 || this.#header.length > 0 || this.#zeroBlocks < 2) {
      throw new InputError("archive-truncated", "the archive ends before its end");
    }
  }

  #fill(piece: Buffer, count: number): void {
    if (piece.some((byte) => byte !== 0)) throw bad("archive-hidden-data", "has bytes between its members");
    this.#padding -= count;
  }

  #take(block: Buffer): void {
    const isZero = block.every((byte) => byte === 0);
    if (this.#zeroBlocks >= 2) {
      this.#tail += BLOCK;
      if (!isZero || this.#tail > MAX_PADDING) throw bad("archive-trailing-data", "goes on behind its end");
      return;
    }
    if (isZero) {
      this.#zeroBlocks += 1;
      return;
    }
    if (this.#zeroBlocks > 0) throw bad("archive-trailing-data", "goes on behind its end");
    const member = memberOf(block);
    this.#admit(member);
    this.#left = member.size;
    this.#padding = (BLOCK - (member.size % BLOCK)) % BLOCK;
  }

  #admit(member: TarMember): void {
    const { path, size } = member;
    if (path === "") return;
    const shown = JSON.stringify(path);
    if (this.#members.has(path)) throw bad("archive-duplicate", `has ${shown} twice`);
    for (let end = path.lastIndexOf("/"); end > 0; end = path.lastIndexOf("/", end - 1)) {
      if (this.#members.get(path.slice(0, end))?.kind === "file") {
        throw bad("archive-duplicate", `has ${shown} below what is a file`);
      }
    }
    if (member.kind === "file" && [...this.#members.keys()].some((other) => other.startsWith(`${path}/`))) {
      throw bad("archive-duplicate", `has ${shown} as a file and as a directory`);
    }
    this.#members.set(path, member);
    if (this.#members.size > this.#limits.maxMembers) {
      throw bad("archive-too-many", `has more than ${this.#limits.maxMembers} members`);
    }
    this.#bytes += size;
    if (this.#bytes > this.#limits.maxBytes) {
      throw bad("archive-too-large", `takes more than the ${this.#limits.maxBytes} bytes of unpackedSize at ${shown}`);
    }
  }
}

function memberOf(block: Buffer): TarMember {
  const sum = block.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 0x20 : byte), 0);
  if (octal(block, 148, 8) !== sum) throw bad("archive-damaged", "has a header whose checksum is wrong");
  if (!/^ustar(?:\0|  \0)/.test(block.toString("latin1", 257, 265))) {
    throw bad("archive-form", "has a header that is not of ustar");
  }
  const isGnu = block[262] === 0x20;
  const prefix = isGnu ? "" : textOf(block, 345, 155);
  const name = textOf(block, 0, 100);
  const raw = prefix === "" ? name : `${prefix}/${name}`;
  const shown = JSON.stringify(raw);
  const type = block[156] === 0 ? "0" : String.fromCharCode(block[156] ?? 0);
  if (type !== "0" && type !== "5") {
    throw bad("archive-member-kind", `has ${shown}, which is ${KINDS[type] ?? "of an unknown kind"}`);
  }
  const mode = octal(block, 100, 8);
  if ((mode & 0o7000) !== 0) throw bad("archive-set-id", `has ${shown} with the mode ${mode.toString(8)}`);
  const size = octal(block, 124, 12);
  const kind = type === "5" ? "directory" : "file";
  if (kind === "directory" && size !== 0) throw bad("archive-damaged", `has the directory ${shown} with content`);
  if (kind === "file" && raw.endsWith("/")) throw bad("archive-name", `has the file ${shown}`);
  return { path: pathOf(raw, kind), kind, size, isExecutable: (mode & 0o100) !== 0 };
}

/** Returns the normalized path of an entry's name; empty for the root directory. */
function pathOf(raw: string, kind: TarMember["kind"]): string {
  const shown = JSON.stringify(raw);
  if (raw.startsWith("/")) throw bad("archive-absolute", `has ${shown}, which is absolute`);
  const parts = raw.replace(/\/$/, "").split("/");
  if (parts.includes("..")) throw bad("archive-parent", `has ${shown}, which leads out of it`);
  if (parts[0] === ".") parts.shift();
  if (parts.length === 0 && kind === "directory") return "";
  if (parts.length === 0 || parts.length > MAX_DEPTH || !parts.every((part) => NAME.test(part))) {
    throw bad("archive-name", `has ${shown}, whose name is not a plain one`);
  }
  return parts.join("/");
}

/** Reads text up to the first zero byte; rejects bytes after it, which another reader might take for part of the name. */
function textOf(block: Buffer, at: number, width: number): string {
  const field = block.subarray(at, at + width);
  const end = field.indexOf(0);
  if (end === -1) return field.toString("latin1");
  if (field.subarray(end).some((byte) => byte !== 0))
    throw bad("archive-name", "has a name with something behind its end");
  return field.toString("latin1", 0, end);
}

/** Parses an octal number; other encodings are for sizes that no package has. */
function octal(block: Buffer, at: number, width: number): number {
  const [, digits] = /^ *([0-7]+)[ \0]*$/.exec(block.toString("latin1", at, at + width)) ?? [];
  if (digits === undefined) throw bad("archive-number", "has a number that is not in octal digits");
  return Number.parseInt(digits, 8);
}

const bad = (code: string, what: string): InputError => new InputError(code, `the package ${what}`);
