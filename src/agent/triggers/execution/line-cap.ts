/** How many lines of a tool are let through in a second, and how many characters in all. */
export interface LineLimits {
  readonly perSecond: number;
  readonly maxBytes: number;
}

const MAX_LINE = 16 * 1024;

/**
 * Cuts text into lines and lets so many of a second through; how many were left out is said when the second is over. Deciding only:
 * the caller gives the time in monotonic milliseconds.
 */
export class LineCap {
  /** True when more bytes came than are allowed; nothing is let through any longer. */
  isFull = false;
  readonly #limits: LineLimits;
  #rest = "";
  #windowStart = Number.NEGATIVE_INFINITY;
  #passed = 0;
  #dropped = 0;
  #bytes = 0;

  constructor(limits: LineLimits) {
    this.#limits = limits;
  }

  /** The lines that may pass, and what is to be said of those that did not. */
  take(text: string, now: number): { readonly lines: string; readonly note: string } {
    const note = now >= this.#windowStart + 1000 ? this.#nextWindow(now) : "";
    const parts = (this.#rest + text).split("\n");
    this.#rest = (parts.pop() ?? "").slice(0, MAX_LINE);
    return { lines: parts.map((line) => this.#pass(line)).join(""), note };
  }

  /** What is left when the tool has ended. */
  end(): { readonly lines: string; readonly note: string } {
    const lines = this.#rest === "" ? "" : this.#pass(this.#rest);
    this.#rest = "";
    return { lines, note: this.#noteOf(this.#dropped) };
  }

  #nextWindow(now: number): string {
    const note = this.#noteOf(this.#dropped);
    this.#windowStart = now;
    this.#passed = 0;
    this.#dropped = 0;
    return note;
  }

  #pass(line: string): string {
    if (this.isFull) return "";
    if (this.#passed >= this.#limits.perSecond) {
      this.#dropped += 1;
      return "";
    }
    const text = `${line.slice(0, MAX_LINE)}\n`;
    this.#bytes += Buffer.byteLength(text);
    if (this.#bytes > this.#limits.maxBytes) {
      this.isFull = true;
      return "";
    }
    this.#passed += 1;
    return text;
  }

  #noteOf(dropped: number): string {
    return dropped === 0 ? "" : `${dropped} lines left out: more than ${this.#limits.perSecond} in a second\n`;
  }
}
