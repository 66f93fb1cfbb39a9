import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { AgentError, HostError, InputError, SessionError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import { errorCodes, isErrorCode } from "../../protocol/values/error-codes.ts";
import { LOCAL_REQUEST_LIMITS, STREAM_BEAT_MS } from "../../protocol/local/api.ts";
import type { Failure } from "../../protocol/local/answers.ts";

/** Sends one JSON object. */
export function sendJson(response: ServerResponse, status: number, body: unknown): void {
  const text = `${JSON.stringify(body)}\n`;
  response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
  response.end(text);
}

/** Returns the error for the caller: its own text if it was thrown on purpose, no internals of a bug. */
export function failureOf(error: Error): Failure {
  if (!(error instanceof AgentError)) return { code: "internal", message: "internal error; see the agent's log" };
  const { code, message, details } = error;
  return details === undefined ? { code, message } : { code, message, details };
}

/** Returns the HTTP status of an error: from the platform's table, else by who must act. */
export function statusOf(error: Error): number {
  if (error instanceof AgentError && isErrorCode(error.code)) return errorCodes[error.code].http;
  if (error instanceof InputError) return error.code === "too-large" ? 413 : 422;
  if (error instanceof SessionError) return 502;
  return error instanceof HostError ? 503 : 500;
}

/**
 * Reads a request's JSON body; an empty one is `{}`.
 * @throws {InputError} as `parseStrictJson`, as soon as a limit is passed.
 */
export async function readJson(request: IncomingMessage, limits = LOCAL_REQUEST_LIMITS): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.byteLength;
    if (size > limits.maxBytes) {
      throw new InputError("too-large", `a request body takes at most ${limits.maxBytes} bytes`);
    }
    chunks.push(chunk);
  }
  const bytes = Buffer.concat(chunks);
  return bytes.every(isBlank) ? {} : parseStrictJson(bytes, limits);
}

/** Sends one JSON object a line as they arrive (NDJSON), no faster than the caller reads, until they end or it disconnects. */
export async function sendLines(
  response: ServerResponse,
  lines: AsyncIterable<unknown>,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  startLines(response);
  let cancelBeat = (): void => undefined;
  const beat = (): void => {
    if (!response.writableNeedDrain) response.write("\n");
    cancelBeat = clock.after(STREAM_BEAT_MS, beat);
  };
  cancelBeat = clock.after(STREAM_BEAT_MS, beat);
  const iterator = lines[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await unlessAborted(iterator.next(), signal);
      if (next.done === true) return;
      if (!response.write(`${JSON.stringify(next.value)}\n`)) await once(response, "drain", { signal });
    }
  } finally {
    cancelBeat();
    // The return of a source that hangs would never settle.
    void Promise.resolve(iterator.return?.()).catch(() => undefined);
  }
}

function startLines(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "application/x-ndjson", "cache-control": "no-store" });
  response.flushHeaders();
}

function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason as Error);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

function isBlank(byte: number): boolean {
  return byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d;
}
