/** Bytes at the start of a file that identify its format. */
export const IMAGE_HEAD_BYTES = 512;

const QCOW2_INCOMPATIBLE_AT = 72;
/** Flag of an external data file (https://www.qemu.org/docs/master/interop/qcow2.html). */
const QCOW2_EXTERNAL_DATA = 1n << 2n;
const VMDK_CAPACITY_AT = 12;
const VMDK_DESCRIPTOR = /^\s*#\s*disk descriptorfile/i;

/** Magic bytes of each format and their offset. */
const MAGIC: readonly (readonly [format: string, at: number, begin: Buffer])[] = [
  ["qed", 0, Buffer.from("QED\0")],
  ["vhdx", 0, Buffer.from("vhdxfile")],
  ["vpc", 0, Buffer.from("conectix")],
  ["vdi", 0x40, Buffer.from([0x7f, 0x10, 0xda, 0xbe])],
  ["parallels", 0, Buffer.from("WithoutFreeSpace")],
  ["parallels", 0, Buffer.from("WithouFreSpacExt")],
  ["luks", 0, Buffer.from([0x4c, 0x55, 0x4b, 0x53, 0xba, 0xbe])],
];

/**
 * Returns the format of a virtual machine image from its first bytes, by qemu's name. Undefined for an image that refers to other files:
 * a tool that opens it would open those, wherever they are.
 */
export function imageFormat(head: Buffer): string | undefined {
  if (begins(head, "QFI\xfb")) return qcowFormat(head);
  if (begins(head, "KDMV")) {
    // A capacity of zero means that the file only wraps a descriptor.
    const isWhole = head.length >= VMDK_CAPACITY_AT + 8 && head.readBigUInt64LE(VMDK_CAPACITY_AT) !== 0n;
    return isWhole ? "vmdk" : undefined;
  }
  if (begins(head, "COWD") || VMDK_DESCRIPTOR.test(head.toString("latin1"))) return undefined;
  const known = MAGIC.find(([, at, begin]) => head.subarray(at, at + begin.length).equals(begin));
  return known?.[0] ?? "raw";
}

const begins = (head: Buffer, text: string): boolean => head.toString("latin1", 0, text.length) === text;

function qcowFormat(head: Buffer): string | undefined {
  if (head.length < QCOW2_INCOMPATIBLE_AT + 8) return undefined;
  const version = head.readUInt32BE(4);
  if (version < 3) return version === 1 ? "qcow" : "qcow2";
  return (head.readBigUInt64BE(QCOW2_INCOMPATIBLE_AT) & QCOW2_EXTERNAL_DATA) === 0n ? "qcow2" : undefined;
}
