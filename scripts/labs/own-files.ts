// Files of the machine that each node of a lab has for itself.
import { cpSync, existsSync, renameSync } from "node:fs";
import { join } from "node:path";

const SCRIPT = 'mount --bind "$0" /etc && exec "$@"';

/**
 * Put before a command line: it runs with an /etc of its own, a copy that lies below `own`, so that a node which sets its resolver sets
 * nobody else's.
 */
export function ownFiles(own: string): readonly string[] {
  const etc = join(own, "etc");
  if (!existsSync(etc)) {
    cpSync("/etc", `${etc}.new`, { recursive: true, verbatimSymlinks: true, filter: isPlain });
    renameSync(`${etc}.new`, etc);
  }
  return ["unshare", "--mount", "sh", "-c", SCRIPT, etc];
}

/** What belongs to the machine alone, and is of no use to a node. */
function isPlain(path: string): boolean {
  return !/^\/etc\/(?:shadow|gshadow|ssl\/private|ssh)\b/.test(path);
}
