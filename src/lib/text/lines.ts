import { InputError } from "../../errors.ts";

const NEWLINE = 0x0a;

/**
 * Splits a byte stream into lines without their newlines; skips empty lines.
 * @throws {InputError} `too-large` as soon as one line exceeds `maxBytes`.
 */
export async function* linesOf(stream: AsyncIterable<Uint8Array>, maxBytes: number): AsyncGenerator<Uint8Array, void> {
  let parts: Uint8Array[] = [];
  let size = 0;
  const take = (part: Uint8Array): void => {
    size += part.byteLength;
    if (size > maxBytes) throw new InputError("too-large", `a line exceeds the limit of ${maxBytes} bytes`);
    parts.push(part);
  };
  for await (const chunk of stream) {
    let from = 0;
    for (let at = chunk.indexOf(NEWLINE); at !== -1; at = chunk.indexOf(NEWLINE, from)) {
      take(chunk.subarray(from, at));
      if (size > 0) yield Buffer.concat(parts);
      parts = [];
      size = 0;
      from = at + 1;
    }
    take(chunk.subarray(from));
  }
  if (size > 0) yield Buffer.concat(parts);
}
