import { dirname, join } from "node:path";
import { changedPath, descriptorPath, stringsOf, type Call } from "./strace-text.ts";

/** One change of files, with paths relative to the watched directory; "" is that directory itself. */
export type FileOp =
  | { readonly do: "open"; readonly path: string; readonly creates: boolean; readonly truncates: boolean }
  /** `at` is undefined for a write that continues the last one. */
  | { readonly do: "write"; readonly path: string; readonly at: number | undefined; readonly data: Buffer }
  | { readonly do: "truncate"; readonly path: string; readonly size: number }
  | { readonly do: "sync"; readonly path: string }
  | { readonly do: "rename"; readonly path: string; readonly to: string }
  | { readonly do: "unlink"; readonly path: string }
  | { readonly do: "mkdir"; readonly path: string };

/** Files and directories by relative path. */
export type Tree = ReadonlyMap<string, Buffer | "directory">;

/**
 * The unsynced data that survives a power cut: nothing; all; all, with the last write torn; all names but no data; all data but no names;
 * or, for a number, a random selection with that seed.
 */
export type Survival = "nothing" | "all" | "torn" | "names" | "data" | number;

interface Write {
  readonly at: number;
  readonly data: Buffer;
}

type Change = Write | { readonly size: number };

/** A file or a directory independent of its names. */
interface Inode {
  readonly isDirectory: boolean;
  synced: Buffer;
  pending: Change[];
  position: number;
}

interface NameChange {
  readonly directory: string;
  readonly removes: readonly string[];
  readonly adds: readonly (readonly [string, Inode])[];
}

const SECTOR = 512;

/** Returns the changes below `root` in a recording, in order, without failed calls. */
export function fileOps(calls: readonly Call[], root: string): readonly FileOp[] {
  return calls.flatMap((call) => {
    const path = within(changedPath(call), root);
    if (path === undefined || (call.result ?? -1) < 0) return [];
    const op = fileOp(call, path, root);
    return op === undefined ? [] : [op];
  });
}

function fileOp(call: Call, path: string, root: string): FileOp | undefined {
  const [first = Buffer.alloc(0), second] = stringsOf(call);
  const numbers = call.args.split(", ").slice(-1).map(Number);
  switch (call.name) {
    case "open":
    case "openat":
      return { do: "open", path, creates: call.args.includes("O_CREAT"), truncates: call.args.includes("O_TRUNC") };
    case "write":
      return { do: "write", path, at: undefined, data: first.subarray(0, call.result) };
    case "pwrite64":
      return { do: "write", path, at: numbers[0] ?? 0, data: first.subarray(0, call.result) };
    case "ftruncate":
      return { do: "truncate", path, size: numbers[0] ?? 0 };
    case "fsync":
    case "fdatasync":
      return descriptorPath(call) === undefined ? undefined : { do: "sync", path };
    case "rename":
      return { do: "rename", path, to: within(second?.toString(), root) ?? "" };
    case "unlink":
      return { do: "unlink", path };
    case "mkdir":
      return { do: "mkdir", path };
    case "chmod":
      return undefined;
    default:
      throw new Error(`a replay does not know ${call.name} of ${path}`);
  }
}

function within(path: string | undefined, root: string): string | undefined {
  if (path === root) return "";
  return path?.startsWith(`${root}/`) === true ? path.slice(root.length + 1) : undefined;
}

/** Returns the contents of the disk after a power cut following these operations, from the given durable state. Pure. */
export function afterPowerCut(before: Tree, ops: readonly FileOp[], survival: Survival): Tree {
  const disk = new Disk(before);
  for (const op of ops) disk.apply(op);
  return disk.cut(survival);
}

class Disk {
  readonly #synced: Map<string, Inode>;
  readonly #live: Map<string, Inode>;
  #pendingNames: NameChange[] = [];
  #lastWrite: Change | undefined;

  constructor(before: Tree) {
    const inodes = [...before].map(([path, content]) => [path, inode(content)] as const);
    this.#synced = new Map(inodes);
    this.#live = new Map(inodes);
  }

  apply(op: FileOp): void {
    switch (op.do) {
      case "open":
        return this.#open(op);
      case "write": {
        const file = this.#file(op.path);
        const at = op.at ?? file.position;
        if (op.at === undefined) file.position = at + op.data.length;
        return this.#change(file, { at, data: op.data });
      }
      case "truncate":
        return this.#change(this.#file(op.path), { size: op.size });
      case "sync":
        return this.#sync(op.path);
      case "rename":
        return this.#rename({ directory: dirOf(op.path), removes: [op.path], adds: [[op.to, this.#file(op.path)]] });
      case "unlink":
        return this.#rename({ directory: dirOf(op.path), removes: [op.path], adds: [] });
      case "mkdir":
        return this.#rename({ directory: dirOf(op.path), removes: [], adds: [[op.path, inode("directory")]] });
    }
  }

  cut(survival: Survival): Tree {
    const random = typeof survival === "number" ? randomFrom(survival) : undefined;
    const keepsName = (): boolean =>
      random === undefined ? survival !== "nothing" && survival !== "data" : random() < 0.5;
    const names = new Map(this.#synced);
    for (const change of this.#pendingNames) if (keepsName()) rename(names, change);
    const tree = new Map<string, Buffer | "directory">();
    // Parents come first, and an entry without its parent is lost.
    for (const [path, { isDirectory, ...file }] of [...names].sort(([a], [b]) => (a < b ? -1 : 1))) {
      const parent = dirOf(path);
      if (path !== "" && parent !== "" && tree.get(parent) !== "directory") continue;
      tree.set(path, isDirectory ? "directory" : this.#content(file, survival, random));
    }
    return tree;
  }

  #content(
    { synced, pending }: Pick<Inode, "synced" | "pending">,
    survival: Survival,
    random: (() => number) | undefined,
  ): Buffer {
    const changes = pending.flatMap((change): readonly Change[] => {
      if (random !== undefined)
        return "size" in change ? (random() < 0.5 ? [change] : []) : sectorsOf(change).filter(() => random() < 0.5);
      if (survival === "nothing" || survival === "names") return [];
      if (survival !== "torn" || change !== this.#lastWrite || "size" in change) return [change];
      return [{ at: change.at, data: change.data.subarray(0, change.data.length >> 1) }];
    });
    return changes.reduce<Buffer>(changed, synced);
  }

  #open({ path, creates, truncates }: FileOp & { readonly do: "open" }): void {
    const existing = this.#live.get(path);
    if (existing === undefined) {
      if (creates) this.#rename({ directory: dirOf(path), removes: [], adds: [[path, inode(Buffer.alloc(0))]] });
      return;
    }
    existing.position = 0;
    if (truncates) this.#change(existing, { size: 0 });
  }

  #change(file: Inode, change: Change): void {
    file.pending.push(change);
    this.#lastWrite = change;
  }

  #sync(path: string): void {
    const target = path === "" ? undefined : this.#file(path);
    if (target !== undefined && !target.isDirectory) {
      target.synced = target.pending.reduce<Buffer>(changed, target.synced);
      target.pending = [];
      return;
    }
    for (const change of this.#pendingNames) if (change.directory === path) rename(this.#synced, change);
    this.#pendingNames = this.#pendingNames.filter(({ directory }) => directory !== path);
  }

  #rename(change: NameChange): void {
    rename(this.#live, change);
    this.#pendingNames.push(change);
  }

  #file(path: string): Inode {
    const found = this.#live.get(path);
    if (found === undefined) throw new Error(`the recording changes ${path}, which is not there`);
    return found;
  }
}

function inode(content: Buffer | "directory"): Inode {
  const isDirectory = content === "directory";
  return { isDirectory, synced: isDirectory ? Buffer.alloc(0) : content, pending: [], position: 0 };
}

function rename(names: Map<string, Inode>, { removes, adds }: NameChange): void {
  for (const path of removes) names.delete(path);
  for (const [path, file] of adds) names.set(path, file);
}

function changed(content: Buffer, change: Change): Buffer {
  const size = "size" in change ? change.size : Math.max(content.length, change.at + change.data.length);
  const next = Buffer.alloc(size);
  content.copy(next);
  if ("data" in change) change.data.copy(next, change.at);
  return next;
}

/** Splits a write into the pieces that a disk writes separately. */
function sectorsOf({ at, data }: Write): readonly Write[] {
  const pieces: Write[] = [];
  for (let from = 0; from < data.length;) {
    const to = Math.min(data.length, (Math.floor((at + from) / SECTOR) + 1) * SECTOR - at);
    pieces.push({ at: at + from, data: data.subarray(from, to) });
    from = to;
  }
  return pieces;
}

function dirOf(path: string): string {
  const parent = dirname(join("/", path)).slice(1);
  return path === "" ? "" : parent;
}

/** Random numbers in [0, 1) of a seed (mulberry32). */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}
