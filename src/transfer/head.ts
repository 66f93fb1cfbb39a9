import { request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { Duplex } from "node:stream";
import { SessionError, toError } from "../errors.ts";
import type { ByteStream } from "../host/net/byte-stream.ts";

/** The head of a request, and the time limit of the response's head. */
export interface HeadRequest {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly waitMs: number;
}

export interface Head {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Body bytes that were read with the head. */
  readonly rest: Buffer;
}

const MAX_HEAD_BYTES = 32 * 1024;
const MAX_INTERIM = 8;
const BLANK_LINE = Buffer.from("\r\n\r\n");

/**
 * Sends a GET and reads the head of the response. Node's HTTP client formats the request and parses the head, but never sees the body,
 * which it would copy. The stream is paused on return.
 * @throws {SessionError} `bad-answer`, `cut-off`, `stalled`
 */
export function askForHead(stream: ByteStream, request: HeadRequest, signal: AbortSignal): Promise<Head> {
  const { path, headers, waitMs } = request;
  const collected = new HeadBytes();
  return new Promise((resolve, reject) => {
    const duplex = new Duplex({
      read: () => undefined,
      write: (bytes: Uint8Array, _encoding, done) => {
        stream.write(bytes);
        done();
      },
    });
    const timer = setTimeout(() => fail(new SessionError("stalled", `no answer came in ${waitMs / 1000} s`)), waitMs);
    const over = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
      duplex.destroy();
    };
    const fail = (error: Error): void => {
      over();
      reject(error);
    };
    const abort = (): void => fail(toError(signal.reason));
    const bad = (why: string): void => fail(new SessionError("bad-answer", why));
    signal.addEventListener("abort", abort, { once: true });

    const asking = httpRequest({
      path,
      headers,
      setHost: false,
      maxHeaderSize: MAX_HEAD_BYTES,
      createConnection: () => duplex,
    });
    let interim = 0;
    asking
      .on("error", (error) => bad(`the answer is not HTTP: ${error.message}`))
      .on("upgrade", () => bad("the answer switches protocols"))
      .on("information", () => {
        interim += 1;
        if (interim > MAX_INTERIM) return bad("there are too many interim answers");
        if (!collected.pass(duplex)) stream.resume();
      })
      .once("response", (response) => {
        over();
        resolve({ status: response.statusCode ?? 0, headers: response.headers, rest: collected.rest() });
      })
      .end();
    void stream.ended.then((error) =>
      fail(new SessionError("cut-off", error?.message ?? "the connection ended before an answer", { cause: error })),
    );
    stream.read((bytes, length) => {
      collected.add(bytes, length);
      if (collected.pass(duplex)) return false;
      if (collected.length <= MAX_HEAD_BYTES) return true;
      bad(`the head of the answer is larger than ${MAX_HEAD_BYTES} bytes`);
      return false;
    });
  });
}

/** Collects bytes until a head is complete. */
class HeadBytes {
  #bytes: Buffer = Buffer.alloc(0);

  get length(): number {
    return this.#bytes.length;
  }

  add(bytes: Buffer, length: number): void {
    this.#bytes = Buffer.concat([this.#bytes, bytes.subarray(0, length)]);
  }

  /** Passes the first head to its reader; returns false while it is incomplete. */
  pass(reader: Duplex): boolean {
    const end = this.#bytes.subarray(0, MAX_HEAD_BYTES).indexOf(BLANK_LINE);
    if (end === -1) return false;
    const head = this.#bytes.subarray(0, end + BLANK_LINE.length);
    this.#bytes = this.#bytes.subarray(end + BLANK_LINE.length);
    // The reader may respond at once and then takes the remaining bytes.
    reader.push(head);
    return true;
  }

  rest(): Buffer {
    return this.#bytes;
  }
}
