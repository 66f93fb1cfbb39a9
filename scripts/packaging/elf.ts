const CLASS_64_LITTLE = Buffer.from([0x7f, 0x45, 0x4c, 0x46, 2, 1]);
const PROGRAM_HEADERS = 32; // e_phoff
const SECTION_HEADERS = 40; // e_shoff
const PROGRAM_HEADER_SIZE = 54; // e_phentsize
const PROGRAM_HEADER_COUNT = 56; // e_phnum
const SECTION_COUNT = 60; // e_shnum
const SECTION_NAMES = 62; // e_shstrndx

/**
 * Cuts off of an executable (ELF, 64 bits, little-endian) what no segment holds: symbols and debugging data, which nothing
 * loads. Unlike strip(1) it does the same bytes to every architecture, whatever tools there are.
 */
export function cutElf(file: Buffer): Buffer {
  if (!file.subarray(0, CLASS_64_LITTLE.length).equals(CLASS_64_LITTLE)) {
    throw new Error("the runtime is no 64-bit little-endian ELF file");
  }
  const size = file.readUInt16LE(PROGRAM_HEADER_SIZE);
  const count = file.readUInt16LE(PROGRAM_HEADER_COUNT);
  const headers = Number(file.readBigUInt64LE(PROGRAM_HEADERS));
  const ends = Array.from({ length: count }, (_, index) => {
    const at = headers + index * size;
    return Number(file.readBigUInt64LE(at + 8) + file.readBigUInt64LE(at + 32)); // p_offset + p_filesz
  });
  const end = Math.max(headers + count * size, ...ends);
  if (end > file.length) throw new Error("the runtime is shorter than its segments");
  const cut = Buffer.from(file.subarray(0, end));
  cut.writeBigUInt64LE(0n, SECTION_HEADERS);
  cut.writeUInt16LE(0, SECTION_COUNT);
  cut.writeUInt16LE(0, SECTION_NAMES);
  return cut;
}
