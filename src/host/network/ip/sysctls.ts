import { open } from "node:fs/promises";
import { constants } from "node:fs";
import { errnoOf, HostError, toError } from "../../../errors.ts";
import type { Reader } from "../../reader.ts";

/** Reads values by dotted names (sysctl(8)); omits missing ones. Multiple values are separated by one space. */
export function readSysctls(reader: Reader, names: Iterable<string>): ReadonlyMap<string, string> {
  const values = new Map<string, string>();
  for (const name of names) {
    const value = reader.read(sysctlPath(name))?.trim();
    if (value !== undefined) values.set(name, value.replaceAll(/\s+/g, " "));
  }
  return values;
}

/**
 * Writes one value.
 * @throws {HostError} `unsupported` if this machine does not have it, `sysctl-failed` if the kernel refuses the value.
 */
export async function writeSysctl(name: string, value: string): Promise<void> {
  const details = { sysctl: name };
  try {
    const file = await open(sysctlPath(name), constants.O_WRONLY);
    try {
      await file.writeFile(`${value}\n`);
    } finally {
      await file.close();
    }
  } catch (cause) {
    if (cause instanceof HostError) throw cause;
    const isAbsent = errnoOf(cause) === "ENOENT";
    const message = isAbsent ? `this kernel has no ${name}` : `cannot set ${name}: ${toError(cause).message}`;
    throw new HostError(isAbsent ? "unsupported" : "sysctl-failed", message, { cause, details });
  }
}

/** Returns the path of a sysctl. A dot within a link's name is written as a slash: `net.ipv4.conf.eth0/30.forwarding`. */
function sysctlPath(name: string): string {
  if (!/^net(?:\.[^\s.]+)+$/u.test(name) || name.includes("\0")) {
    throw new HostError("bad-name", `invalid name of a network sysctl: ${JSON.stringify(name)}`, { details: { name } });
  }
  const parts = name.split(".").map((part) => part.replaceAll("/", "."));
  if (parts.some((part) => /^\.+$/.test(part))) {
    throw new HostError("bad-name", `invalid name of a network sysctl: ${JSON.stringify(name)}`, { details: { name } });
  }
  return `/proc/sys/${parts.join("/")}`;
}
