import { lstatSync } from "node:fs";
import { errnoOf } from "../../errors.ts";

/** The type, mode and size of the entry at a path; links are not followed. */
export interface PathEntry {
  readonly kind: "file" | "directory" | "socket" | "other";
  readonly uid: number;
  readonly gid: number;
  /** Permission bits. */
  readonly mode: number;
  readonly sizeBytes: number;
}

/** Reads the entry at a path; returns `denied` if this user lacks permission. */
export function readEntry(path: string): PathEntry | "absent" | "denied" {
  try {
    const found = lstatSync(path);
    const kind = found.isFile() ? "file" : found.isDirectory() ? "directory" : found.isSocket() ? "socket" : "other";
    return { kind, uid: found.uid, gid: found.gid, mode: found.mode & 0o7777, sizeBytes: found.size };
  } catch (error) {
    return errnoOf(error) === "EACCES" || errnoOf(error) === "EPERM" ? "denied" : "absent";
  }
}

/** Reports whether this process runs as root. */
export function isRoot(): boolean {
  return process.geteuid?.() === 0;
}
