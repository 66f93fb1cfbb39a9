import { SessionError } from "../errors.ts";

/** Receives a piece of the body, valid only during the call. */
export type TakeBody = (bytes: Buffer, from: number, to: number) => void;

/** Framing of a message body (RFC 9112 §6.3). */
export interface Framing {
  /** Reads the next bytes of the connection; returns true at the end of the body. @throws {SessionError} `bad-length`, `bad-answer` */
  feed(bytes: Buffer, length: number, take: TakeBody): boolean;
  /** Reports whether closing the connection ends the body. */
  readonly endsWithConnection: boolean;
}

/** Framing by Content-Length. */
export function framedByLength(total: number): Framing {
  let left = total;
  return {
    endsWithConnection: false,
    feed(bytes, length, take) {
      if (length > left) throw new SessionError("bad-length", "more was sent than was announced");
      left -= length;
      if (length > 0) take(bytes, 0, length);
      return left === 0;
    },
  };
}

/** Framing by the end of the connection. */
export const framedByEnd: Framing = {
  endsWithConnection: true,
  feed(bytes, length, take) {
    if (length > 0) take(bytes, 0, length);
    return false;
  },
};

const [CR, LF, SEMICOLON] = [13, 10, 59];
const MAX_SIZE_DIGITS = 12;
const MAX_LINE_BYTES = 4096;
const MAX_TRAILER_BYTES = 16_384;

/** Framing by chunks (RFC 9112 §7.1); ignores extensions and trailers. */
export function framedByChunks(): Framing {
  type State = "size" | "extension" | "data" | "data-end" | "trailer" | "done";
  let state: State = "size";
  let size = 0;
  let digits = 0;
  let overhead = 0;
  let trailerLine = 0;
  const bad = (why: string): SessionError => new SessionError("bad-answer", `the chunked body ${why}`);

  /** Parses one byte between chunks of data. */
  function step(byte: number): void {
    overhead += 1;
    if (overhead > (state === "trailer" ? MAX_TRAILER_BYTES : MAX_LINE_BYTES)) throw bad("has too long a line");
    if (state === "size") {
      const digit = hexDigit(byte);
      if (digit >= 0) {
        size = size * 16 + digit;
        digits += 1;
        if (digits > MAX_SIZE_DIGITS) throw bad("has too large a chunk");
      } else if (digits === 0 || (byte !== CR && byte !== SEMICOLON && byte !== 32 && byte !== 9)) {
        throw bad("has a chunk without a size");
      } else state = "extension";
    } else if (state === "extension") {
      if (byte !== LF) return;
      state = size === 0 ? "trailer" : "data";
      overhead = 0;
      digits = 0;
    } else if (state === "data-end") {
      if (byte === LF) {
        state = "size";
        overhead = 0;
      } else if (byte !== CR) throw bad("has a chunk longer than its size");
    } else if (state === "trailer") {
      if (byte !== LF && byte !== CR) trailerLine += 1;
      else if (byte === LF) {
        if (trailerLine === 0) state = "done";
        trailerLine = 0;
      }
    }
  }

  return {
    endsWithConnection: false,
    feed(bytes, length, take) {
      let at = 0;
      while (at < length) {
        if (state === "done") throw new SessionError("bad-length", "more was sent than was announced");
        if (state === "data") {
          const end = Math.min(length, at + size);
          take(bytes, at, end);
          size -= end - at;
          at = end;
          if (size === 0) state = "data-end";
        } else {
          step(bytes[at] ?? 0);
          at += 1;
        }
      }
      return isDone();
    },
  };

  function isDone(): boolean {
    return state === "done";
  }
}

function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const letter = byte | 32;
  return letter >= 97 && letter <= 102 ? letter - 87 : -1;
}
