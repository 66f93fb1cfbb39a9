/** One measured number, what it is compared with, and the bar it must keep. */
export interface Figure {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
  readonly peer?: { readonly name: string; readonly value: number };
  /** The median of the ratios of all rounds, where that is known; else the ratio is that of the values. */
  readonly ratio?: number;
  readonly bar?: Bar;
  /** Reason why it could not be measured here; such a figure neither meets nor misses its target. */
  readonly skipped?: string;
}

/** Bounds on the value itself or on its ratio to the peer. */
export type Bar =
  | { readonly of: "value" | "ratio"; readonly most: number }
  | { readonly of: "value" | "ratio"; readonly least: number };

/** The middle value; of an even number the mean of the two in the middle. NaN of nothing. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const at = Math.floor(sorted.length / 2);
  const upper = sorted[at] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[at - 1] ?? Number.NaN) + upper) / 2;
}

/** Value by peer; undefined where there is none or it is 0. */
export function ratioOf({ value, peer, ratio }: Figure): number | undefined {
  if (ratio !== undefined) return ratio;
  return peer === undefined || peer.value === 0 ? undefined : value / peer.value;
}

/** A figure that this machine cannot give. */
export function skip(what: string, why: string): Figure {
  return { what, value: Number.NaN, unit: "", skipped: why };
}

/** Whether the bar is kept; a number that came out as none keeps none. */
export function isMet(figure: Figure): boolean {
  const { bar, skipped } = figure;
  if (bar === undefined || skipped !== undefined) return true;
  const measured = bar.of === "value" ? figure.value : ratioOf(figure);
  if (measured === undefined || Number.isNaN(measured)) return false;
  return "most" in bar ? measured <= bar.most : measured >= bar.least;
}

/** The figures as aligned lines of text. */
export function table(figures: readonly Figure[]): string {
  const rows = figures.map((figure) => {
    const { what, value, unit, peer, bar, skipped } = figure;
    if (skipped !== undefined) return [what, "SKIP", "", "", "", "", skipped];
    const ratio = ratioOf(figure);
    return [
      what,
      `${short(value)} ${unit}`.trim(),
      peer === undefined ? "" : `${short(peer.value)} ${unit}`.trim(),
      peer?.name ?? "",
      ratio === undefined ? "" : `${ratio.toFixed(2)} ×`,
      bar === undefined ? "" : barText(bar, unit),
      bar === undefined ? "" : isMet(figure) ? "met" : "MISSED",
    ];
  });
  const lines = [["what", "here", "peer", "the peer is", "ratio", "bar", ""], ...rows];
  const widths = lines[0]?.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0))) ?? [];
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** The last line: how many bars are kept, and which are not. */
export function summary(area: string, figures: readonly Figure[]): string {
  const barred = figures.filter(({ bar, skipped }) => bar !== undefined && skipped === undefined);
  const missed = barred.filter((figure) => !isMet(figure)).map(({ what }) => what);
  const kept = `${barred.length - missed.length} of ${barred.length} bars met`;
  const skipped = figures.filter(({ skipped }) => skipped !== undefined).map(({ what }) => what);
  const rest = [named("missed", missed), named("skipped", skipped)].join("");
  return `bench ${area}: ${kept}${rest}`;
}

function named(how: string, what: readonly string[]): string {
  return what.length === 0 ? "" : `; ${how}: ${what.join(", ")}`;
}

function barText(bar: Bar, unit: string): string {
  const [sign, limit] = "most" in bar ? ["≤", bar.most] : ["≥", bar.least];
  return `${sign} ${limit} ${bar.of === "ratio" ? "×" : unit}`.trimEnd();
}

function short(value: number): string {
  if (Number.isInteger(value)) return String(value);
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : Math.abs(value) >= 1 ? 2 : 3;
  return value.toFixed(digits);
}
