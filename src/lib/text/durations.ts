const STEPS: readonly (readonly [unit: string, seconds: number, until: number])[] = [
  ["s", 1, 100],
  ["min", 60, 100 * 60],
  ["h", 3600, 48 * 3600],
  ["d", 86_400, Number.POSITIVE_INFINITY],
];

/** Formats milliseconds for people: `12 s`, `5 min`, `3 h`, `9 d`. */
export function formatDuration(ms: number): string {
  const seconds = Math.max(0, ms) / 1000;
  const [unit, size] = STEPS.find(([, , until]) => seconds < until) ?? ["d", 86_400];
  return `${Math.floor(seconds / size)} ${unit}`;
}

/** Formats how long something has lasted, in milliseconds: `for 5 min`, or `just now`. */
export function formatSpan(ms: number): string {
  return ms < 1000 ? "just now" : `for ${formatDuration(ms)}`;
}

/** Formats a count with its noun: `1 step`, `0 steps`. */
export function formatCount(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

/** Formats a time relative to another, both in milliseconds: `now`, `5 min ago`, `in 12 s`. */
export function formatMoment(at: number, now: number): string {
  const distance = now - at;
  if (Math.abs(distance) < 1000) return "now";
  return distance > 0 ? `${formatDuration(distance)} ago` : `in ${formatDuration(-distance)}`;
}

/** Formats bytes with a decimal unit: `62 MB`. */
export function formatBytes(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value >= 10 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit] ?? "B"}`;
}
