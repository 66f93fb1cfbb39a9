import { shellFields } from "../../lib/text/text-fields.ts";
import type { Reader } from "../reader.ts";

/** The operating system by os-release(5). */
export interface OsRelease {
  readonly id: string | undefined;
  readonly version: string | undefined;
}

export function readOsRelease(reader: Reader): OsRelease {
  const fields = shellFields(reader.read("/etc/os-release") ?? reader.read("/usr/lib/os-release") ?? "");
  const version = fields.get("VERSION") ?? fields.get("VERSION_ID");
  return { id: fields.get("ID")?.slice(0, 128), version: version?.slice(0, 256) };
}

const DEBIAN_NAMES: Readonly<Record<string, string>> = { x64: "amd64", ia32: "i386", arm: "armhf", ppc64: "ppc64el" };

/** Returns dpkg's name of the processor architecture: `amd64`, `arm64`. */
export function debianArchitecture(arch: string): string {
  return DEBIAN_NAMES[arch] ?? arch;
}
