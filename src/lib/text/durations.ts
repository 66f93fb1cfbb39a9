const STEPS: readonly (readonly [unit: string, seconds: number, until: number])[] = [
  ["s", 1, 100],
  ["min", 60, 100 * 60],
  ["h", 3600, 48 * 3600],
  ["d", 86_400, Number.POSITIVE_INFINITY],
];

/** A length of time in milliseconds as people say it: `12 s`, `5 min`, `3 h`, `9 d`. */
export function formatDuration(ms: number): string {
  const seconds = Math.max(0, ms) / 1000;
  const [unit, size] = STEPS.find(([, , until]) => seconds < until) ?? ["d", 86_400];
  return `${Math.floor(seconds / size)} ${unit}`;
}

/** How long something lasts, in milliseconds: `for 5 min`, or `just now` when it has hardly begun. */
export function formatSpan(ms: number): string {
  return ms < 1000 ? "just now" : `for ${formatDuration(ms)}`;
}

/** A number of things in the singular or the plural: `1 step`, `0 steps`. */
export function formatCount(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

/** A moment seen from another, both in milliseconds: `now`, `5 min ago`, `in 12 s`. */
export function formatMoment(at: number, now: number): string {
  const distance = now - at;
  if (Math.abs(distance) < 1000) return "now";
  return distance > 0 ? `${formatDuration(distance)} ago` : `in ${formatDuration(-distance)}`;
}

/** A size in bytes with a decimal unit: `62 MB`. */
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
