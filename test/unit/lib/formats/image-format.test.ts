import { expect, test } from "vitest";
import { imageFormat } from "../../../../src/lib/formats/image-format.ts";

/** A head of 512 bytes with these parts at these offsets. */
function head(...parts: readonly (readonly [at: number, bytes: string | readonly number[]])[]): Buffer {
  const made = Buffer.alloc(512);
  for (const [at, bytes] of parts) made.set(typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes, at);
  return made;
}

const qcow2 = (version: number, incompatible = 0): Buffer => head([0, "QFI\xfb"], [7, [version]], [79, [incompatible]]);

test.each([
  ["a disk without a head", head(), "raw"],
  ["an empty file", Buffer.alloc(0), "raw"],
  ["a boot sector", head([510, [0x55, 0xaa]]), "raw"],
  ["qcow2 of version 2, which has no such bits", qcow2(2, 4), "qcow2"],
  ["qcow2 of version 3", qcow2(3), "qcow2"],
  ["qcow2 that is dirty, corrupt, compressed otherwise and has extended entries", qcow2(3, 0b1_1011), "qcow2"],
  ["qcow2 with its data elsewhere", qcow2(3, 4), undefined],
  ["qcow2 that ends before it says where its data are", qcow2(3).subarray(0, 79), undefined],
  ["qcow", qcow2(1), "qcow"],
  ["a sparse VMDK", head([0, "KDMV"], [12, [0, 128]]), "vmdk"],
  ["the same without a capacity", head([0, "KDMV"]), undefined],
  ["the same, cut off", Buffer.from("KDMV\x01"), undefined],
  ["a VMDK of version 3", head([0, "COWD"]), undefined],
  ["a VMDK's descriptor", Buffer.from("# Disk DescriptorFile\nversion=1\n"), undefined],
  ["one that is written otherwise", Buffer.from("\n#disk descriptorfile\r\nversion=1\n"), undefined],
  ["QED", head([0, "QED\0"]), "qed"],
  ["VHDX", head([0, "vhdxfile"]), "vhdx"],
  ["VHD", head([0, "conectix"]), "vpc"],
  ["VDI", head([0, "<<< QEMU VM"], [0x40, [0x7f, 0x10, 0xda, 0xbe]]), "vdi"],
  ["Parallels", head([0, "WithouFreSpacExt"]), "parallels"],
  ["LUKS", head([0, "LUKS\xba\xbe"]), "luks"],
])("%s", (_, bytes, format) => {
  expect(imageFormat(bytes)).toBe(format);
});
