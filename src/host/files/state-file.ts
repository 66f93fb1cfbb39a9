import { createHash } from "node:crypto";
import type { z } from "zod";
import { errnoOf, HostError } from "../../errors.ts";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import type { Files } from "./files.ts";
import { isNoRegularFile } from "./regular-file.ts";
import { serialQueue } from "../../lib/async/serial-queue.ts";

/**
 * The result of reading a state file: the newest copy, `recovered` with the previous copy, or `lost` with neither. A damaged file
 * was set aside at `damagedCopy`, as was a damaged previous copy beside a good newest one.
 */
export type Loaded<T> =
  | { readonly is: "absent" }
  | { readonly is: "good"; readonly value: T; readonly damagedCopy?: string }
  | { readonly is: "recovered"; readonly value: T; readonly damagedCopy: string }
  | { readonly is: "lost"; readonly damagedCopy: string };

/** Suffix of an intact file that was set aside because a newer version wrote it in an unknown form. */
export const NEWER_SUFFIX = ".newer";
const DAMAGED_SUFFIX = ".damaged";

export interface StateFileOptions<T> {
  readonly path: string;
  readonly schema: z.ZodType<T>;
  /** Keep the preceding copy as `<path>.previous` for recovery. */
  readonly keepsPrevious: boolean;
}

/** One checksummed JSON file of state, readable only by its owner. */
export interface StateFile<T> {
  load(): Promise<Loaded<T>>;
  /** Returns the result of a load without setting anything aside, so that a later load returns the same. */
  inspect(): Promise<Loaded<T>>;
  /** Replaces the content atomically and durably. */
  save(value: T): Promise<void>;
  /** Saves like `save` but keeps the previous copy, because the current one is not a good fallback. */
  supersede(value: T): Promise<void>;
  /** Returns the previous copy; undefined if there is no good one. */
  previous(): Promise<T | undefined>;
  /** Replaces both copies durably, the newest first, so that no earlier content can return. */
  replace(value: T): Promise<void>;
  /** Removes every copy. */
  remove(): Promise<void>;
}

const MODE = 0o600;
const FORMAT = 1;
const LIMITS = { maxBytes: 128 * 1024 * 1024, maxDepth: 64 };

/** Returns the value of the good copy, if there is one. */
export function valueOf<T>(loaded: Loaded<T>): T | undefined {
  return loaded.is === "good" || loaded.is === "recovered" ? loaded.value : undefined;
}

/** Returns a state file over real files. */
export function stateFile<T>(files: Files, options: StateFileOptions<T>): StateFile<T> {
  const { path, schema } = options;
  const previous = `${path}.previous`;

  const inspectCopy = async (copy: string): Promise<Loaded<T>> => {
    const text = await readText(files, copy);
    if (text === undefined) return { is: "absent" };
    const value = text === UNREADABLE ? undefined : unseal(text, schema);
    if (value !== undefined && value !== OTHER_FORM) return { is: "good", value: value.body };
    return { is: "lost", damagedCopy: copy + (value === OTHER_FORM ? NEWER_SUFFIX : DAMAGED_SUFFIX) };
  };
  const readCopy = async (copy: string): Promise<Loaded<T>> => {
    const found = await inspectCopy(copy);
    // If the disk refuses writes, the damaged file stays in place; reading continues.
    if (found.is === "lost") await files.move(copy, found.damagedCopy).catch(() => undefined);
    return found;
  };
  const choose = async (read: typeof readCopy): Promise<Loaded<T>> => {
    const newest = await read(path);
    if (!options.keepsPrevious) return newest;
    const older = await read(previous);
    if (newest.is === "good") return older.is === "lost" ? { ...newest, damagedCopy: older.damagedCopy } : newest;
    if (older.is !== "good") return newest.is === "absent" ? older : newest;
    // A previous copy alone remains after the newest was set aside and before the next save.
    const damagedCopy = newest.is === "lost" ? newest.damagedCopy : path + DAMAGED_SUFFIX;
    return { is: "recovered", value: older.value, damagedCopy };
  };

  const save = async (value: T): Promise<void> => {
    if (options.keepsPrevious) {
      const current = await readText(files, path);
      // A copy that was damaged after it was read must not replace a good one.
      if (current !== undefined && current !== UNREADABLE && bodyOf(unseal(current, schema)) !== undefined)
        await files.writeAtomic(previous, current, MODE);
    }
    await files.writeAtomic(path, seal(value), MODE);
  };
  const replace = async (value: T): Promise<void> => {
    await files.writeAtomic(path, seal(value), MODE);
    if (options.keepsPrevious) await files.writeAtomic(previous, seal(value), MODE);
  };
  const remove = async (): Promise<void> => {
    // The newest goes last, so that an interruption does not leave an older state as the newest.
    await files.remove(previous);
    await files.remove(path);
  };
  // Serialized: if two ran at once, the older one could win.
  const serially = serialQueue();

  return {
    async load() {
      const loaded = await choose(readCopy);
      if (loaded.is === "good" && loaded.damagedCopy !== undefined)
        await files.writeAtomic(previous, seal(loaded.value), MODE).catch(() => undefined);
      return loaded;
    },
    inspect: () => choose(inspectCopy),
    previous: () => readSealed(files, previous, schema),
    save: (value) => serially(() => save(value)),
    supersede: (value) => serially(() => files.writeAtomic(path, seal(value), MODE)),
    replace: (value) => serially(() => replace(value)),
    remove: () => serially(remove),
  };
}

/** A state file that keeps the newest content in memory while the disk refuses it. */
export interface HeldStateFile<T> extends StateFile<T> {
  /** Whether the newest content is only in memory. */
  readonly isUnsaved: boolean;
  /** Writes content that is only in memory, if the disk accepts it. */
  keep(): Promise<void>;
}

/** Wraps a state file: content that the disk refuses is used until this program ends, and the disk keeps the earlier copy. */
export function heldStateFile<T>(file: StateFile<T>): HeldStateFile<T> {
  type Unsaved = { readonly value: T | undefined; readonly write: () => Promise<void> };
  let unsaved: Unsaved | undefined;
  const written = async (value: T | undefined, write: () => Promise<void>): Promise<void> => {
    try {
      await write();
      unsaved = undefined;
    } catch (error) {
      if (!(error instanceof HostError)) throw error;
      unsaved = { value, write };
    }
  };
  const current = (found: Loaded<T>): Loaded<T> => {
    if (unsaved === undefined) return found;
    return unsaved.value === undefined ? { is: "absent" } : { is: "good", value: unsaved.value };
  };
  return {
    get isUnsaved() {
      return unsaved !== undefined;
    },
    load: async () => current(await file.load()),
    inspect: async () => current(await file.inspect()),
    previous: async () => (unsaved === undefined ? file.previous() : valueOf(await file.inspect())),
    save: (value) => written(value, () => file.save(value)),
    supersede: (value) => written(value, () => file.supersede(value)),
    replace: (value) => written(value, () => file.replace(value)),
    remove: () => written(undefined, () => file.remove()),
    async keep() {
      if (unsaved !== undefined) await written(unsaved.value, unsaved.write);
    },
  };
}

/** Returns the content of a sealed file; undefined if it is damaged, missing, or does not match the schema. */
export async function readSealed<T>(
  files: Pick<Files, "read">,
  path: string,
  schema: z.ZodType<T>,
): Promise<T | undefined> {
  const text = await readText(files, path);
  return text === undefined || text === UNREADABLE ? undefined : bodyOf(unseal(text, schema))?.body;
}

const UNREADABLE = Symbol("unreadable");
const OTHER_FORM = Symbol("other form");
type Unsealed<T> = { readonly body: T } | typeof OTHER_FORM | undefined;

function bodyOf<T>(unsealed: Unsealed<T>): { readonly body: T } | undefined {
  return unsealed === OTHER_FORM ? undefined : unsealed;
}

/** Returns the text of a file. A directory, a pipe, a device or a link loop in its place counts as damage, as does a failing disk. */
async function readText(files: Pick<Files, "read">, path: string): Promise<string | typeof UNREADABLE | undefined> {
  try {
    return await files.read(path);
  } catch (error) {
    const code = error instanceof Error ? errnoOf(error.cause) : undefined;
    if (isNoRegularFile(code) || code === "ELOOP" || code === "EIO") return UNREADABLE;
    throw error;
  }
}

function seal(body: unknown): string {
  const text = JSON.stringify(body);
  return `{"format":${FORMAT},"sha256":"${digest(text)}","body":${text}}\n`;
}

function unseal<T>(text: string, schema: z.ZodType<T>): Unsealed<T> {
  try {
    const sealed = parseStrictJson(text, LIMITS);
    if (typeof sealed !== "object" || sealed === null || !("body" in sealed && "sha256" in sealed)) return undefined;
    if (sealed.sha256 !== digest(JSON.stringify(sealed.body))) return undefined;
    const parsed = schema.safeParse(sealed.body);
    return parsed.success ? { body: parsed.data } : OTHER_FORM;
  } catch {
    return undefined;
  }
}

function digest(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
