import { lstatSync } from "node:fs";
import { errnoOf } from "../../errors.ts";

/** What there is at a path; links are not followed. */
export interface Looked {
  readonly kind: "file" | "directory" | "socket" | "other";
  readonly uid: number;
  readonly gid: number;
  /** Permission bits. */
  readonly mode: number;
  readonly sizeBytes: number;
}

/** Looks at a path; `denied` where this user may not. */
export function lookAt(path: string): Looked | "absent" | "denied" {
  try {
    const found = lstatSync(path);
    const kind = found.isFile() ? "file" : found.isDirectory() ? "directory" : found.isSocket() ? "socket" : "other";
    return { kind, uid: found.uid, gid: found.gid, mode: found.mode & 0o7777, sizeBytes: found.size };
  } catch (error) {
    return errnoOf(error) === "EACCES" || errnoOf(error) === "EPERM" ? "denied" : "absent";
  }
}

/** Whether this process may look at everything. */
export function isRoot(): boolean {
  return process.geteuid?.() === 0;
}
