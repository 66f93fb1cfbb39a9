/** A capture in tcpdump's format: packets of these lengths, each filled with its number. */
export function somePcap(lengths: readonly number[], isLittle = true): Buffer {
  const header = Buffer.alloc(24);
  const records = lengths.map((length, at) => {
    const record = Buffer.alloc(16 + length, at);
    for (const [offset, value] of [at, 0, length, length].entries()) {
      if (isLittle) record.writeUInt32LE(value, offset * 4);
      else record.writeUInt32BE(value, offset * 4);
    }
    return record;
  });
  if (isLittle) header.writeUInt32LE(0xa1b2c3d4, 0);
  else header.writeUInt32BE(0xa1b2c3d4, 0);
  return Buffer.concat([header, ...records]);
}
