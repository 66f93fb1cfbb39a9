import type { DataStoreListing } from "../../protocol/triggers/data-store.ts";
import type { Clock } from "../clock.ts";

/** How many entries are shown, and how deep. */
export interface ListCaps {
  readonly maxEntries: number;
  readonly maxDepth: number;
}

/** An open regular file of the store, reached without following any link. */
export interface StoreFile {
  readonly fd: number;
  readonly bytes: number;
  /** The names from the root to it. */
  readonly parts: readonly string[];
  close(): void;
}

/** A file that is being written, under a name of its own until `publish`. */
export interface StorePart {
  readonly fd: number;
  /** Bytes that an earlier attempt left in it. */
  readonly bytes: number;
  /** Makes it durable, and tells what its content as it is now can be known by later, under whichever name. */
  mark(): Promise<string>;
  /** Makes it durable and gives it its final name in one step, replacing a file of that name. */
  publish(): Promise<void>;
  /** Closes it and leaves it for a later attempt. */
  keep(): void;
  /** Closes and removes it. */
  discard(): void;
}

/**
 * The data store's directory tree. Every path is walked name by name from a descriptor of the root, and no link is ever followed, so
 * that nothing outside is reached, whatever somebody changes meanwhile (openat(2), proc(5) `/proc/self/fd`).
 * @throws {InputError} `bad-path`, `not-found`, `forbidden-path`, `exists`, `not-a-file`, `not-a-directory`, `in-use`;
 *   {HostError} `disk-full`, `read-only`, `storage-failed`.
 */
export interface Store {
  readonly root: string;
  list(path: string | undefined, caps: ListCaps, signal: AbortSignal): Promise<DataStoreListing>;
  /** Makes a directory and those on the way to it. @throws {InputError} `exists` when there is something at the path. */
  mkdir(path: string): Promise<void>;
  /**
   * Removes a file or a directory with all that is in it; links as links. Tells now and then how many entries are gone so far. What is
   * aborted or fails leaves the rest.
   */
  remove(path: string, signal: AbortSignal, onRemoved: (entries: number) => void): Promise<void>;
  /** Opens a regular file for reading. */
  open(path: string): StoreFile;
  /**
   * Opens the part file of a task for a file at a path, its directory made when missing, with at most so many of the bytes that an earlier
   * attempt left.
   */
  openPart(path: string, id: string, keepBytes: number): StorePart;
  /** Whether the file at a path is the part that had this mark; its name is on the disk then. */
  isPublished(path: string, mark: string): Promise<boolean>;
  /** Removes the part of a task that nobody goes on with. */
  dropPart(path: string, id: string): Promise<void>;
  /** Removes the parts of all tasks but those of these ids, and tells how many they were. */
  sweepParts(known: ReadonlySet<string>, signal: AbortSignal): Promise<number>;
  space(): Promise<{ readonly freeBytes: number; readonly totalBytes: number }>;
  /** Bytes that the store takes on the disk, counted slowly and at most once in `countEveryMs`. */
  used(signal: AbortSignal): Promise<number>;
  /** What goes on ends as soon as it asks for the root again, with `storage-failed`; files that were opened stay open. */
  close(): void;
}

export interface StoreOptions {
  /**
   * Why something may not be removed, and not be replaced: it is used, holds what is used, or is in it. Undefined when nothing is against
   * it. Asked with the names from the root, before anything is done.
   */
  readonly isInUse?: (parts: readonly string[]) => string | undefined;
  readonly clock?: Clock;
  /** How long a count of the used bytes is good. */
  readonly countEveryMs?: number;
}
