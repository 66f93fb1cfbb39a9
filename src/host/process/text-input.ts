import { createInterface } from "node:readline";
import { errnoOf, HostError, InputError, toError } from "../../errors.ts";
import { isCompactJws } from "../../lib/formats/compact-jws.ts";
import { readRegularFile } from "../files/regular-file.ts";

/**
 * Reads a small text from a file, or from standard input for `-`.
 * @throws {InputError} `usage` for a license instead of a path, `too-large`, `invalid-utf8`, `not-found`; {HostError}
 *   `file-failed`.
 */
export async function readTextInput(path: string, maxBytes: number, signal: AbortSignal): Promise<string> {
  // The error about a missing file would print the license.
  if (isCompactJws(path)) {
    throw new InputError(
      "usage",
      "a license was given instead of a file: save it in a file, or pass it on standard input with -",
    );
  }
  if (path !== "-") return readTextFile(path, maxBytes);
  const stream = process.stdin;
  const name = "standard input";
  const abort = (): void => void stream.destroy(toError(signal.reason));
  signal.addEventListener("abort", abort, { once: true });
  try {
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      size += chunk.byteLength;
      if (size > maxBytes) throw new InputError("too-large", `${name} is larger than ${maxBytes} bytes`);
      chunks.push(chunk);
    }
    return decode(Buffer.concat(chunks), name);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof InputError) throw error;
    throw new HostError("file-failed", `cannot read ${name}: ${toError(error).message}`, { cause: error });
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

async function readTextFile(path: string, maxBytes: number): Promise<string> {
  try {
    return decode(await readRegularFile(path, maxBytes), path);
  } catch (error) {
    if (error instanceof InputError) throw error;
    const code = errnoOf(error);
    if (code === "EFBIG") throw new InputError("too-large", `${path} is larger than ${maxBytes} bytes`);
    if (code === "ENOENT") throw new InputError("not-found", `file ${path} does not exist`, { cause: error });
    throw new HostError("file-failed", `cannot read ${path}: ${toError(error).message}`, { cause: error });
  }
}

/** Reads one line from standard input, without its newline; undefined at the end of input. */
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

/** Reads lines of standard input, one at a time; input typed ahead answers the next question. */
export interface AnswerReader {
  /** Returns the next line; undefined at the end of input. Rejects with the signal's reason when aborted. */
  next(signal: AbortSignal): Promise<string | undefined>;
  close(): void;
}

/** Opens standard input for a dialogue. */
export function openAnswers(): AnswerReader {
  const reader = createInterface({ input: process.stdin, terminal: false });
  const lines: string[] = [];
  const input = { isEnded: false };
  let ring: () => void = () => undefined;
  reader.on("line", (line) => {
    lines.push(line);
    ring();
  });
  reader.once("close", () => {
    input.isEnded = true;
    ring();
  });
  return {
    async next(signal) {
      while (lines.length === 0 && !input.isEnded) {
        signal.throwIfAborted();
        await new Promise<void>((resolve, reject) => {
          const onAbort = (): void => reject(toError(signal.reason));
          signal.addEventListener("abort", onAbort, { once: true });
          ring = () => {
            signal.removeEventListener("abort", onAbort);
            resolve();
          };
        });
      }
      return lines.shift();
    },
    close() {
      reader.close();
      process.stdin.pause();
    },
  };
}

function decode(bytes: Buffer, name: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    throw new InputError("invalid-utf8", `${name} is not UTF-8 text`, { cause: error });
  }
}
