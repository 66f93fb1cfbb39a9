/** How many bytes of a file's beginning tell its format. */
export const IMAGE_HEAD_BYTES = 512;

const QCOW2_INCOMPATIBLE_AT = 72;
/** https://www.qemu.org/docs/master/interop/qcow2.html: the data are in another file, which the header names. */
const QCOW2_EXTERNAL_DATA = 1n << 2n;
const VMDK_CAPACITY_AT = 12;
const VMDK_DESCRIPTOR = /^\s*#\s*disk descriptorfile/i;

/** What begins a file of each format, and where. */
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
 * The format of a virtual machine's image by its head, as qemu calls it. Undefined for one whose content is in files that it names: a
 * tool that opened it would open those, wherever they are.
 */
export function imageFormat(head: Buffer): string | undefined {
  if (begins(head, "QFI\xfb")) return qcowFormat(head);
  if (begins(head, "KDMV")) {
    // Without a capacity of its own it is but the wrapping of a descriptor.
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
