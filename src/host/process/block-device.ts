import type { Reader } from "../reader.ts";

export interface BlockDevice {
  /** `/dev/vda`. */
  readonly path: string;
  /** Major and minor number as the kernel writes them, `254:0`. */
  readonly number: string;
}

/**
 * Returns the whole disk behind a path without symbolic links: the disk of a partition, or a device-mapper device itself.
 * Undefined if there is no disk (tmpfs, overlay, network) or several (a pool).
 */
export function wholeDiskOf(reader: Reader, path: string): BlockDevice | undefined {
  const mount = mountOf(reader.read("/proc/self/mountinfo") ?? "", path);
  if (mount === undefined) return undefined;
  // Some file systems (btrfs) have a device number of their own and name the device only as text.
  const target =
    reader.linkTarget(`/sys/dev/block/${mount.number}`) ??
    (mount.source.startsWith("/dev/") ? reader.linkTarget(`/sys/class/block/${sysName(mount.source)}`) : undefined);
  if (target === undefined) return undefined;
  const names = target.split("/");
  const name = names.at(-1) ?? "";
  const isPartition = reader.read(`/sys/class/block/${name}/partition`) !== undefined;
  const disk = isPartition ? (names.at(-2) ?? "") : name;
  const number = reader.read(`/sys/class/block/${disk}/dev`)?.trim();
  if (number === undefined || !/^\d+:\d+$/.test(number)) return undefined;
  return { path: `/dev/${disk.replaceAll("!", "/")}`, number };
}

interface MountLine {
  readonly number: string;
  readonly point: string;
  readonly source: string;
}

/** Returns the file system that holds a path: the deepest mount point on the path, and the last mount there (proc(5)). */
function mountOf(text: string, path: string): MountLine | undefined {
  let found: MountLine | undefined;
  for (const line of text.split("\n")) {
    const [before = "", after = ""] = line.split(" - ");
    const [, , number, , point] = before.split(" ");
    if (number === undefined || point === undefined) continue;
    const mount = { number, point: unescaped(point), source: unescaped(after.split(" ")[1] ?? "") };
    const isOnTheWay = mount.point === "/" || mount.point === path || path.startsWith(`${mount.point}/`);
    if (isOnTheWay && mount.point.length >= (found?.point.length ?? 0)) found = mount;
  }
  return found;
}

/** Decodes octal escapes: a blank is written as `\040`. */
const unescaped = (text: string): string =>
  text.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));

/** Returns the name below /sys: `/dev/cciss/c0d0p1` is `cciss!c0d0p1`. */
const sysName = (path: string): string => path.slice("/dev/".length).replaceAll("/", "!");
