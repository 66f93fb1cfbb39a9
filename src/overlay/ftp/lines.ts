/** Splits bytes into lines of bounded length and keeps the incomplete rest. Characters are bytes (ISO 8859-1). */
export class Lines {
  readonly #maxBytes: number;
  #rest = "";

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Returns the complete lines, each with its line end, or undefined if one is too long. */
  take(chunk: Uint8Array): readonly string[] | undefined {
    const text = this.#rest + Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength).toString("latin1");
    const lines: string[] = [];
    let start = 0;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", start)) {
      if (end - start >= this.#maxBytes) return undefined;
      lines.push(text.slice(start, end + 1));
      start = end + 1;
    }
    this.#rest = text.slice(start);
    return this.#rest.length > this.#maxBytes ? undefined : lines;
  }
}
