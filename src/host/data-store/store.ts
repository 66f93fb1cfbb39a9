import type { DataStoreListing } from "../../protocol/triggers/data-store.ts";
import type { Clock } from "../clock.ts";

/** Limits of a listing: number of entries and depth. */
export interface ListCaps {
  readonly maxEntries: number;
  readonly maxDepth: number;
}

/** An open regular file of the store, reached without following links. */
export interface StoreFile {
  readonly fd: number;
  readonly bytes: number;
  /** Names from the root to the file. */
  readonly parts: readonly string[];
  close(): void;
}

/** A file being written under a temporary name until `publish`. */
export interface StorePart {
  readonly fd: number;
  /** Number of bytes kept from an earlier attempt. */
  readonly bytes: number;
  /** Syncs it and returns a mark that identifies the current content later, under any name. */
  mark(): Promise<string>;
  /** Syncs it and atomically renames it to its final name, replacing a file of that name. */
  publish(): Promise<void>;
  /** Closes it and leaves it for a later attempt. */
  keep(): void;
  /** Closes and removes it. */
  discard(): void;
}

/**
 * The data store's directory tree. Paths are walked name by name from a descriptor of the root without following links, so
 * nothing outside is reached, even under concurrent changes (openat(2), proc(5) `/proc/self/fd`).
 * @throws {InputError} `bad-path`, `not-found`, `forbidden-path`, `exists`, `not-a-file`, `not-a-directory`, `in-use`;
 *   {HostError} `disk-full`, `read-only`, `storage-failed`.
 */
export interface Store {
  readonly root: string;
  list(path: string | undefined, caps: ListCaps, signal: AbortSignal): Promise<DataStoreListing>;
  /** Makes a directory and its parents. @throws {InputError} `exists` if the path exists. */
  mkdir(path: string): Promise<void>;
  /**
   * Removes a file or a directory with its content; links as links. Reports the number of removed entries from time to time. An
   * abort or a failure leaves the remaining entries.
   */
  remove(path: string, signal: AbortSignal, onRemoved: (entries: number) => void): Promise<void>;
  /** Opens a regular file for reading. */
  open(path: string): StoreFile;
  /** Opens the part file of a task for a path, keeping at most `keepBytes` bytes of an earlier attempt; makes its directory if missing. */
  openPart(path: string, id: string, keepBytes: number): StorePart;
  /** Reports whether the file at a path is the part with this mark; also syncs its name to disk. */
  isPublished(path: string, mark: string): Promise<boolean>;
  /** Removes the part of an abandoned task. */
  dropPart(path: string, id: string): Promise<void>;
  /** Removes the parts of all tasks except these and returns their number. */
  sweepParts(known: ReadonlySet<string>, signal: AbortSignal): Promise<number>;
  space(): Promise<{ readonly freeBytes: number; readonly totalBytes: number }>;
  /** Returns the disk space used by the store in bytes; counted slowly, at most once per `countEveryMs`. */
  used(signal: AbortSignal): Promise<number>;
  /** Running operations fail with `storage-failed` at their next use of the root; open files stay open. */
  close(): void;
}

export interface StoreOptions {
  /**
   * Returns the reason why an entry may not be removed or replaced: it is used, contains used entries, or is inside one.
   * Undefined if it may be. Called with the names from the root before any change.
   */
  readonly isInUse?: (parts: readonly string[]) => string | undefined;
  readonly clock?: Clock;
  /** Validity of a count of the used bytes, in milliseconds. */
  readonly countEveryMs?: number;
}
