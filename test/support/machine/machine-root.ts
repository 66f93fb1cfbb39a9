import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { hostReader } from "../../../src/host/reader.ts";
import type { Reader } from "../../../src/host/reader.ts";
import { tempDir } from "../temp-dir.ts";

/** A directory with the files of a machine; paths as on the machine, `-> target` makes a symbolic link. */
export function machineRoot(files: Readonly<Record<string, string>>): { root: string; reader: Reader } {
  const root = tempDir();
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    if (content.startsWith("-> ")) symlinkSync(content.slice(3), join(root, path));
    else writeFileSync(join(root, path), content);
  }
  return { root, reader: hostReader(root) };
}

/** The files of one link below /sys/class/net. */
export function linkFiles(name: string, files: Readonly<Record<string, string>>): Record<string, string> {
  const defaults = { address: "02:00:00:00:00:01", mtu: "1500", operstate: "up", carrier: "1", flags: "0x1003" };
  return Object.fromEntries(
    Object.entries({ ...defaults, ...files }).map(([file, text]) => [`/sys/class/net/${name}/${file}`, `${text}\n`]),
  );
}
