const MAX_LINE_BYTES = 4096;

/** Takes a stream of bytes apart into lines and puts it together again from what `change` makes of each. */
export class Lines {
  readonly #change: (line: string) => string;
  #rest = "";
  /** Within a line that is too long to be looked at. */
  #isLong = false;

  /** `change` is given whole lines with their ends, every byte one character. */
  constructor(change: (line: string) => string) {
    this.#change = change;
  }

  pass(chunk: Buffer): Buffer {
    let text = this.#rest + chunk.toString("latin1");
    let out = "";
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n")) {
      const line = text.slice(0, end + 1);
      text = text.slice(end + 1);
      out += this.#isLong ? line : this.#change(line);
      this.#isLong = false;
    }
    if (this.#isLong || text.length > MAX_LINE_BYTES) {
      this.#isLong = true;
      out += text;
      text = "";
    }
    this.#rest = text;
    return Buffer.from(out, "latin1");
  }
}
