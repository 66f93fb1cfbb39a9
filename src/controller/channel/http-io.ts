import type { IncomingMessage, ServerResponse } from "node:http";
import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { defined } from "../../lib/defined.ts";

/** Returns the path of a request, without query. */
export function pathOf(request: IncomingMessage): string {
  return (request.url ?? "/").split("?", 1)[0] ?? "/";
}

export function answerJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  const text = JSON.stringify(body);
  response.writeHead(status, {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(text),
    "cache-control": "no-store",
    ...headers,
  });
  response.end(text);
}

/** Sends an error in the common JSON form. */
export function answerError(
  response: ServerResponse,
  status: number,
  error: { readonly code: string; readonly message: string; readonly details?: unknown },
  headers: Readonly<Record<string, string>> = {},
): void {
  const { code, message, details } = error;
  answerJson(response, status, { error: message, code, ...defined({ details }) }, headers);
}

/**
 * Reads a whole body.
 * @throws {InputError} `too-large` as soon as it exceeds the limit; `timeout` if it takes too long; `cut-off` if the sender disconnects
 */
export async function readBody(
  request: IncomingMessage,
  { maxBytes, withinMs }: { readonly maxBytes: number; readonly withinMs: number },
  clock: Clock,
): Promise<Buffer> {
  let cancel = (): void => undefined;
  const late = new Promise<never>((_, reject) => {
    cancel = clock.after(withinMs, () =>
      reject(new InputError("timeout", `the body did not arrive within ${withinMs} ms`)),
    );
  });
  try {
    return await Promise.race([readAll(request, maxBytes), late]);
  } finally {
    cancel();
  }
}

async function readAll(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  if (Number(request.headers["content-length"] ?? 0) > maxBytes) throw tooLarge(maxBytes);
  try {
    for await (const chunk of request.iterator({ destroyOnReturn: false })) {
      if (!Buffer.isBuffer(chunk)) continue;
      size += chunk.byteLength;
      if (size > maxBytes) throw tooLarge(maxBytes);
      chunks.push(chunk);
    }
  } catch (error) {
    if (error instanceof InputError) throw error;
    throw new InputError("cut-off", "the connection closed before the whole body arrived", { cause: error });
  }
  return Buffer.concat(chunks);
}

function tooLarge(maxBytes: number): InputError {
  return new InputError("too-large", `the body is larger than ${maxBytes} bytes`);
}
