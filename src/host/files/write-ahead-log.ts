const HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
/** Magic number; its lowest bit gives the byte order of the checksums. */
const MAGIC = 0x377f0682;
const VERSION = 3_007_000;

type Sums = readonly [number, number];

/**
 * Reports whether a SQLite write-ahead log (https://sqlite.org/fileformat2.html#walformat) lost synced transactions. SQLite
 * itself silently stops at the first wrong frame. A power cut also leaves wrong frames, but no later transaction behind them,
 * because each is synced before the next starts. A later transaction behind a wrong frame therefore proves damage. Damage to the
 * last one or two transactions, or a truncated log, cannot be distinguished from a power cut.
 */
export function isLogDamaged(log: Buffer): boolean {
  if (log.length < HEADER_BYTES + FRAME_HEADER_BYTES) return false;
  const pageBytes = log.readUInt32BE(8);
  const magic = log.readUInt32BE(0);
  const isBigEndian = (magic & 1) === 1;
  const header = sum(log, 0, 24, [0, 0], isBigEndian);
  const isPageSize = pageBytes >= 512 && pageBytes <= 65_536 && (pageBytes & (pageBytes - 1)) === 0;
  const isKnown = (magic & ~1) === MAGIC && log.readUInt32BE(4) === VERSION && isPageSize;
  // The header is synced before the first frame, so no frame exists without it.
  if (!isKnown || !isSame(header, sumsAt(log, 24))) return !isZero(log.subarray(HEADER_BYTES));

  const frameBytes = FRAME_HEADER_BYTES + pageBytes;
  const count = Math.floor((log.length - HEADER_BYTES) / frameBytes);
  const at = (i: number): number => HEADER_BYTES + i * frameBytes;
  const hasSalt = (i: number): boolean => log.compare(log, 16, 24, at(i) + 8, at(i) + 16) === 0;
  const storedBefore = (i: number): Sums => sumsAt(log, i === 0 ? 24 : at(i - 1) + 16);
  const isIntact = (i: number): boolean => {
    if (i >= count || !hasSalt(i)) return false;
    const head = sum(log, at(i), 8, storedBefore(i), isBigEndian);
    return isSame(sum(log, at(i) + FRAME_HEADER_BYTES, pageBytes, head, isBigEndian), sumsAt(log, at(i) + 16));
  };
  const isCommit = (i: number): boolean => hasSalt(i) && log.readUInt32BE(at(i) + 4) !== 0;

  let first = 0;
  while (isIntact(first)) first += 1;
  for (let i = first; i < count - 1; i += 1) if (isCommit(i) && isIntact(i + 1)) return true;
  return false;
}

function sum(bytes: Buffer, from: number, length: number, [a, b]: Sums, isBigEndian: boolean): Sums {
  let [first, second] = [a, b];
  for (let at = from; at < from + length; at += 8) {
    const one = isBigEndian ? bytes.readUInt32BE(at) : bytes.readUInt32LE(at);
    const two = isBigEndian ? bytes.readUInt32BE(at + 4) : bytes.readUInt32LE(at + 4);
    first = (first + one + second) >>> 0;
    second = (second + two + first) >>> 0;
  }
  return [first, second];
}

function sumsAt(bytes: Buffer, at: number): Sums {
  return [bytes.readUInt32BE(at), bytes.readUInt32BE(at + 4)];
}

function isSame(a: Sums, b: Sums): boolean {
  return a[0] === b[0] && a[1] === b[1];
}

function isZero(bytes: Buffer): boolean {
  return bytes.every((byte) => byte === 0);
}
