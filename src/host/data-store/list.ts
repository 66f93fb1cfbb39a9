import { lstat } from "node:fs/promises";
import type { DataStoreEntry } from "../../protocol/triggers/data-store.ts";
import type { Found, Name } from "./descriptors.ts";
import { allEnded, at, entriesOf, holding, isDenied, isGone } from "./descriptors.ts";
import { isHidden } from "./parse-path.ts";
import type { ListCaps } from "./store.ts";

/** An entry under construction. */
interface Draft {
  readonly name: string;
  readonly path: string;
  readonly type: DataStoreEntry["type"];
  readonly bytes: number;
  files?: Draft[];
}

/** A directory still to be read. */
interface Waiting {
  readonly names: readonly Name[];
  readonly depth: number;
  readonly draft: { readonly path: string; files?: Draft[] };
}

const MORE = "…";

/**
 * Lists a directory and its subdirectories, breadth first, so that one large directory does not hide the others. Opens each
 * directory anew from the root, so that each is listed as it is when it is read.
 * @param reach Opens the directory at a path of names; called until everything is read.
 */
export async function listTree(
  reach: (names: readonly Name[]) => number,
  names: readonly string[],
  caps: ListCaps,
  signal: AbortSignal,
): Promise<readonly DataStoreEntry[]> {
  const top: Waiting = { names, depth: 1, draft: { path: names.join("/") } };
  const queue = [top];
  const budget = { left: caps.maxEntries };
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    signal.throwIfAborted();
    if (next.depth > caps.maxDepth || budget.left <= 0) {
      next.draft.files = [marker(next.draft.path)];
      continue;
    }
    try {
      queue.push(...(await holding(reach(next.names), (fd) => read(fd, next, budget, signal))));
    } catch (error) {
      if (next === top || !(isGone(error) || isDenied(error))) throw error;
      next.draft.files = isDenied(error) ? [marker(next.draft.path)] : [];
    }
  }
  return (top.draft.files ?? []).map(finished);
}

/** Fills in a directory and returns its subdirectories. */
async function read(
  fd: number,
  { names, depth, draft }: Waiting,
  budget: { left: number },
  signal: AbortSignal,
): Promise<readonly Waiting[]> {
  const found: { readonly name: Name; readonly draft: Draft }[] = [];
  let isWhole = true;
  for await (const batch of entriesOf(fd)) {
    signal.throwIfAborted();
    const seen = batch.filter(({ text }) => !isHidden(names, text));
    const taken = seen.slice(0, budget.left);
    const looked = await allEnded(
      taken.map(async (entry) => ({ name: entry.name, draft: await inspect(fd, entry, draft.path) })),
    );
    for (const { name, draft } of looked) if (draft !== undefined) found.push({ name, draft });
    budget.left -= taken.length;
    isWhole = taken.length === seen.length;
    if (!isWhole) break;
  }
  found.sort(({ draft: a }, { draft: b }) => (a.name < b.name ? -1 : Number(a.name > b.name)));
  const files = found.map(({ draft }) => draft);
  draft.files = isWhole ? files : [...files, marker(draft.path)];
  return found
    .filter(({ draft }) => draft.type === "directory")
    .map(({ name, draft }) => ({ names: [...names, name], depth: depth + 1, draft }));
}

async function inspect(directory: number, { name, text }: Found, parent: string): Promise<Draft | undefined> {
  try {
    const stat = await lstat(at(directory, name));
    const type = stat.isDirectory() ? "directory" : stat.isFile() ? "file" : "other";
    const path = parent === "" ? text : `${parent}/${text}`;
    return { name: text, path, type, bytes: type === "file" ? stat.size : 0 };
  } catch (error) {
    if (isGone(error)) return undefined;
    throw error;
  }
}

const marker = (path: string): Draft => ({ name: MORE, path, type: "truncated", bytes: 0 });

/** The size of a directory is the sum of its listed entries. */
function finished({ files, ...draft }: Draft): DataStoreEntry {
  if (draft.type !== "directory") return { ...draft, size: sizeText(draft.bytes) };
  const inner = (files ?? []).map(finished);
  const bytes = inner.reduce((sum, { bytes }) => sum + bytes, 0);
  return { ...draft, size: sizeText(bytes), bytes, files: inner };
}

const UNITS = ["kB", "MB", "GB", "TB", "PB"] as const;

/** Formats bytes in decimal units with one decimal, `9.4 GB`; below 1000 as is, `17 B`. */
export function sizeText(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  let value = bytes / 1000;
  let unit = 0;
  // A value that would round to 1000.0 uses the next unit.
  while (value >= 999.95 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value.toFixed(1)} ${UNITS[unit] ?? "PB"}`;
}
