// Files of the machine that each node of a lab has for itself.
import { cpSync, existsSync, mkdirSync, renameSync } from "node:fs";
import { join } from "node:path";

/** Directories of DHCP clients' state outside /etc. */
const CLIENTS = ["/run/dhcpcd", "/var/lib/dhcpcd", "/var/lib/dhcp"];
const SCRIPT = [
  'own=$0; mount --bind "$own/etc" /etc',
  `for at in ${CLIENTS.join(" ")}; do mkdir -p "$at" "$own/files$at" && mount --bind "$own/files$at" "$at"; done`,
  'exec "$@"',
].join(" && ");

/**
 * Put before a command line: it runs with an /etc of its own, a copy that lies below `own`, so that a node which sets its resolver sets
 * nobody else's; and what its DHCP client writes is its own too.
 */
export function ownFiles(own: string): readonly string[] {
  const etc = join(own, "etc");
  if (!existsSync(etc)) {
    mkdirSync(own, { recursive: true, mode: 0o700 });
    cpSync("/etc", `${etc}.new`, { recursive: true, verbatimSymlinks: true, filter: isPlain });
    renameSync(`${etc}.new`, etc);
  }
  return ["unshare", "--mount", "sh", "-c", SCRIPT, own];
}

/** Reports whether a node may have a copy of the file: no secrets of the machine. */
function isPlain(path: string): boolean {
  return !/^\/etc\/(?:shadow|gshadow|ssl\/private|ssh)\b/.test(path);
}
