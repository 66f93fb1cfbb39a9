const UNITS = ["kB", "MB", "GB", "TB", "PB"] as const;

/** Formats bytes in powers of ten with one decimal: `9.4 GB`; below 1000 as `999 B`. */
export function sizeText(bytes: number): string {
  if (bytes < 1000) return `${Math.max(0, Math.round(bytes))} B`;
  // A value that rounds up to 1000.0 becomes 1.0 of the next unit.
  const scaled = UNITS.map((unit, at) => ({ unit, value: bytes / 1000 ** (at + 1) }));
  const fitting = scaled.find(({ value }) => value < 999.95) ?? scaled.at(-1);
  return fitting === undefined ? `${bytes} B` : `${fitting.value.toFixed(1)} ${fitting.unit}`;
}
