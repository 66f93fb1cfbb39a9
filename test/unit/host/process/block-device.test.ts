import { existsSync, realpathSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { wholeDiskOf } from "../../../../src/host/process/block-device.ts";
import { hostReader } from "../../../../src/host/reader.ts";
import { machineRoot } from "../../../support/machine/machine-root.ts";

const MOUNTS = [
  "22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw",
  "23 22 0:21 / /proc rw - proc proc rw",
  "24 22 259:3 / /var/lib rw master:2 shared:5 - xfs /dev/nvme0n1p3 rw",
  "25 24 253:1 / /var/lib/docker rw - ext4 /dev/mapper/vg-docker rw",
  "26 22 0:40 / /run rw - tmpfs tmpfs rw",
  "27 22 0:41 / /merged rw - overlay overlay rw",
  "28 22 0:42 / /pool rw - btrfs /dev/cciss/c0d0p1 rw",
  "29 22 8:16 / /with\\040blank rw - ext4 /dev/sdb rw",
  "30 22 8:2 / /twice rw - ext4 /dev/sda2 rw",
  "31 30 8:16 / /twice rw - ext4 /dev/sdb rw",
  "32 22 0:43 / /nfs rw - nfs4 server:/dev/sda rw",
  "short line",
  "",
].join("\n");

function machine() {
  const device = (path: string, number: string, isPartition = false): Record<string, string> => {
    const name = path.split("/").at(-1) ?? "";
    const base = `/sys/devices/${path}`;
    return {
      [`${base}/dev`]: `${number}\n`,
      ...(isPartition ? { [`${base}/partition`]: "1\n" } : {}),
      [`/sys/dev/block/${number}`]: `-> ../../devices/${path}`,
      [`/sys/class/block/${name}`]: `-> ../../devices/${path}`,
    };
  };
  return machineRoot({
    "/proc/self/mountinfo": MOUNTS,
    ...device("pci/ata1/block/sda", "8:0"),
    ...device("pci/ata1/block/sda/sda2", "8:2", true),
    ...device("pci/ata2/block/sdb", "8:16"),
    ...device("pci/nvme/nvme0/nvme0n1", "259:0"),
    ...device("pci/nvme/nvme0/nvme0n1/nvme0n1p3", "259:3", true),
    ...device("virtual/block/dm-1", "253:1"),
    ...device("pci/block/cciss!c0d0", "104:0"),
    ...device("pci/block/cciss!c0d0/cciss!c0d0p1", "104:1", true),
  }).reader;
}

describe("the whole disk", () => {
  test.each([
    ["/srv", { path: "/dev/sda", number: "8:0" }],
    ["/var/lib/holdfast", { path: "/dev/nvme0n1", number: "259:0" }],
    ["/var/library", { path: "/dev/sda", number: "8:0" }],
    ["/var/lib/docker/volumes", { path: "/dev/dm-1", number: "253:1" }],
    ["/pool/x", { path: "/dev/cciss/c0d0", number: "104:0" }],
    ["/with blank/x", { path: "/dev/sdb", number: "8:16" }],
    ["/twice", { path: "/dev/sdb", number: "8:16" }],
    ["/run/x", undefined],
    ["/merged", undefined],
    ["/nfs", undefined],
  ])("of %s", (path, disk) => {
    expect(wholeDiskOf(machine(), path)).toEqual(disk);
  });

  test("is none if nothing can be read", () => {
    expect(wholeDiskOf(machineRoot({}).reader, "/")).toBeUndefined();
  });

  test("of this machine is a device, if it has one", () => {
    const disk = wholeDiskOf(hostReader(), realpathSync("."));
    expect(disk === undefined || existsSync(disk.path)).toBe(true);
  });
});
