import type { MissingPart, Part } from "./part.ts";

/**
 * Reduces parts to `maxBytes` in all: first cuts the beginnings of the largest logs to one common size, then drops whole parts, the largest
 * first. Pure.
 */
export function fitInto(
  parts: readonly Part[],
  maxBytes: number,
): { readonly parts: readonly Part[]; readonly missing: readonly MissingPart[] } {
  const sizes = new Map(parts.map((part) => [part.name, Buffer.byteLength(part.text)]));
  const sizeOf = ({ name }: Part): number => sizes.get(name) ?? 0;
  const others = parts.filter(({ isLog }) => !isLog).sort((a, b) => sizeOf(a) - sizeOf(b));
  const missing: MissingPart[] = [];
  let left = maxBytes;
  const kept = new Set<string>();
  for (const part of others) {
    if (sizeOf(part) > left)
      missing.push({ name: part.name, reason: "there was no room for it: ask for more with --max" });
    else kept.add(part.name);
    left -= sizeOf(part) > left ? 0 : sizeOf(part);
  }
  const share = shareOf(parts.filter(({ isLog }) => isLog).map(sizeOf), left);
  const fitted = parts
    .filter(({ isLog, name }) => isLog || kept.has(name))
    .map((part) => (part.isLog && sizeOf(part) > share ? cut(part, share) : part));
  return { parts: fitted, missing };
}

/** Returns the maximum size of a log with which all parts fit. */
function shareOf(sizes: readonly number[], room: number): number {
  let left = room;
  const sorted = sizes.toSorted((a, b) => a - b);
  for (const [at, size] of sorted.entries()) {
    const each = Math.floor(left / (sorted.length - at));
    if (size > each) return Math.max(0, each);
    left -= size;
  }
  return Infinity;
}

/** Keeps the end, from the start of a line. */
function cut(part: Part, bytes: number): Part {
  const whole = Buffer.from(part.text);
  const end = whole.subarray(whole.length - bytes).toString("utf8");
  const text = end.slice(end.indexOf("\n") + 1);
  return { ...part, text, cutBytes: part.cutBytes + whole.length - Buffer.byteLength(text) };
}
