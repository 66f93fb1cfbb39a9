import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { errnoOf, HostError, InputError, toError } from "../errors.ts";

/**
 * Reads a small text from a file, or from standard input for `-`.
 * @throws {InputError} `too-large`, `invalid-utf8`, `not-found`; {HostError} `file-failed`.
 */
export async function readTextInput(path: string, maxBytes: number, signal: AbortSignal): Promise<string> {
  const stream = path === "-" ? process.stdin : createReadStream(path);
  const name = path === "-" ? "standard input" : path;
  const abort = (): void => void stream.destroy(toError(signal.reason));
  signal.addEventListener("abort", abort, { once: true });
  try {
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      size += chunk.byteLength;
      if (size > maxBytes) throw new InputError("too-large", `${name} holds more than ${maxBytes} bytes`);
      chunks.push(chunk);
    }
    return decode(Buffer.concat(chunks), name);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof InputError) throw error;
    if (errnoOf(error) === "ENOENT") throw new InputError("not-found", `there is no file ${path}`, { cause: error });
    throw new HostError("file-failed", `cannot read ${name}: ${toError(error).message}`, { cause: error });
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/** One line from standard input, without its newline; undefined when it ends first. */
export async function readAnswer(signal: AbortSignal): Promise<string | undefined> {
  const reader = createInterface({ input: process.stdin, terminal: false, signal });
  try {
    for await (const line of reader) return line;
    signal.throwIfAborted();
    return undefined;
  } finally {
    reader.close();
    process.stdin.pause();
  }
}

function decode(bytes: Buffer, name: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    throw new InputError("invalid-utf8", `${name} is not UTF-8 text`, { cause: error });
  }
}
