import { createHash } from "node:crypto";
import type { z } from "zod";
import { errnoOf, HostError } from "../../errors.ts";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import type { Files } from "./files.ts";
import { isNoRegularFile } from "./regular-file.ts";
import { serialQueue } from "../../lib/async/serial-queue.ts";

/**
 * What reading a state file came to. `recovered` is the previous copy, and `lost` neither; a damaged file was set aside at
 * `damagedCopy`, as was a damaged previous copy beside a good newest one, which then takes its place too.
 */
export type Loaded<T> =
  | { readonly is: "absent" }
  | { readonly is: "good"; readonly value: T; readonly damagedCopy?: string }
  | { readonly is: "recovered"; readonly value: T; readonly damagedCopy: string }
  | { readonly is: "lost"; readonly damagedCopy: string };

/** The ending of a file that was set aside because it is whole and of a form that this version does not know: a newer one wrote it. */
export const NEWER_SUFFIX = ".newer";
const DAMAGED_SUFFIX = ".damaged";

export interface StateFileOptions<T> {
  readonly path: string;
  readonly schema: z.ZodType<T>;
  /** Keep the copy before the last as `<path>.previous`, to fall back on. */
  readonly keepsPrevious: boolean;
}

/** One checksummed JSON file of state, readable by its owner alone. */
export interface StateFile<T> {
  load(): Promise<Loaded<T>>;
  /** What loading would come to; nothing is set aside, so that whoever loads it hears the same. */
  inspect(): Promise<Loaded<T>>;
  /** Replaces the content in one durable step; whatever cuts it short leaves the old or the new one. */
  save(value: T): Promise<void>;
  /** As `save`, and the copy before the last stays what it is: the last was no good one to fall back on. */
  supersede(value: T): Promise<void>;
  /** The previous copy; undefined when there is none that is good. */
  previous(): Promise<T | undefined>;
  /** Replaces both copies in durable steps, the newest first, so that nothing of what was there comes back. */
  replace(value: T): Promise<void>;
  /** Removes every copy. */
  remove(): Promise<void>;
}

const MODE = 0o600;
const FORMAT = 1;
const LIMITS = { maxBytes: 128 * 1024 * 1024, maxDepth: 64 };

/** The value of whichever copy was good. */
export function valueOf<T>(loaded: Loaded<T>): T | undefined {
  return loaded.is === "good" || loaded.is === "recovered" ? loaded.value : undefined;
}

/** A state file over real files. */
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
    // On a disk that takes no writes the damaged file stays where it is; reading goes on all the same.
    if (found.is === "lost") await files.move(copy, found.damagedCopy).catch(() => undefined);
    return found;
  };
  const choose = async (read: typeof readCopy): Promise<Loaded<T>> => {
    const newest = await read(path);
    if (!options.keepsPrevious) return newest;
    const older = await read(previous);
    if (newest.is === "good") return older.is === "lost" ? { ...newest, damagedCopy: older.damagedCopy } : newest;
    if (older.is !== "good") return newest.is === "absent" ? older : newest;
    // A previous copy alone is what is left after the newest was set aside and nothing saved since.
    const damagedCopy = newest.is === "lost" ? newest.damagedCopy : path + DAMAGED_SUFFIX;
    return { is: "recovered", value: older.value, damagedCopy };
  };

  const save = async (value: T): Promise<void> => {
    if (options.keepsPrevious) {
      const current = await readText(files, path);
      // What was damaged since it was read must not take the place of a good copy.
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
    // The newest goes last, lest a cut leave an older state in force.
    await files.remove(previous);
    await files.remove(path);
  };
  // One after the other, or of two at once the older might be the one that stays.
  const inTurn = serialQueue();

  return {
    async load() {
      const loaded = await choose(readCopy);
      if (loaded.is === "good" && loaded.damagedCopy !== undefined)
        await files.writeAtomic(previous, seal(loaded.value), MODE).catch(() => undefined);
      return loaded;
    },
    inspect: () => choose(inspectCopy),
    previous: () => readSealed(files, previous, schema),
    save: (value) => inTurn(() => save(value)),
    supersede: (value) => inTurn(() => files.writeAtomic(path, seal(value), MODE)),
    replace: (value) => inTurn(() => replace(value)),
    remove: () => inTurn(remove),
  };
}

/** A state file whose newest content is kept in memory while the disk refuses it. */
export interface HeldStateFile<T> extends StateFile<T> {
  /** Whether the newest content is in memory alone. */
  readonly isUnsaved: boolean;
  /** Writes what is in memory alone, if the disk takes it. */
  keep(): Promise<void>;
}

/** The same file; what the disk refuses counts until this program ends, and the disk keeps the copy before. */
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

/** What a sealed file holds, as it stands; undefined when it is damaged, not there, or of another form than the schema. */
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

/**
 * The text of a file; a directory, a pipe, a device or a circle of links in its place, or a broken disk below it, is damage like any
 * other.
 */
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
