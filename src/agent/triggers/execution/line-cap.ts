/** Limits of a tool's output: lines per second, and bytes in all. */
export interface LineLimits {
  readonly perSecond: number;
  readonly maxBytes: number;
}

const MAX_LINE = 16 * 1024;

/**
 * Splits text into lines, passes a limited number per second, and notes the number of dropped lines after each second. Pure: the caller
 * gives the time in monotonic milliseconds.
 */
export class LineCap {
  /** True after the byte limit; all further output is dropped. */
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

  /** Returns the lines within the limit, and a note about dropped ones. */
  take(text: string, now: number): { readonly lines: string; readonly note: string } {
    const note = now >= this.#windowStart + 1000 ? this.#nextWindow(now) : "";
    const parts = (this.#rest + text).split("\n");
    this.#rest = (parts.pop() ?? "").slice(0, MAX_LINE);
    return { lines: parts.map((line) => this.#pass(line)).join(""), note };
  }

  /** Returns the rest after the tool has ended. */
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
    return dropped === 0 ? "" : `${dropped} lines dropped: more than ${this.#limits.perSecond} in a second\n`;
  }
}
