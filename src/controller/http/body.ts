import { InputError } from "../../errors.ts";
import { parseStrictJson, type JsonLimits } from "../../lib/formats/strict-json.ts";
import { isObject } from "../../protocol/sections/common/forms.ts";

const MAX_NULL_BYTES = 16;

/** Limits of a request body other than a section. */
export const BODY_LIMITS: JsonLimits = { maxBytes: 1024 * 1024, maxDepth: 32 };

/**
 * Reads a request body of at most `maxBytes`.
 * @throws {InputError} `too-large`
 */
export async function readBytes(request: Request, maxBytes: number): Promise<Uint8Array> {
  const length = request.headers.get("content-length");
  if (Number(length ?? 0) > maxBytes) throw tooLarge(maxBytes);
  // The server reads no more than this length.
  if (length !== null) return new Uint8Array(await request.arrayBuffer());
  const body: ReadableStream<Uint8Array> | null = request.body;
  if (body === null) return new Uint8Array();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.byteLength;
    if (size > maxBytes) throw tooLarge(maxBytes);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/**
 * Reads and parses a JSON body; undefined if it is empty or the literal `null`, which clients send for "no body" and without a content type.
 * @throws {InputError} `wrong-content-type`, `too-large`, or a code of `parseStrictJson`
 */
export async function readJson(request: Request, limits: JsonLimits): Promise<unknown> {
  const bytes = await readBytes(request, limits.maxBytes);
  if (bytes.byteLength === 0 || isNull(bytes)) return undefined;
  const type = mediaType(request);
  if (type !== "application/json" && !/^application\/[a-z0-9.-]+\+json$/.test(type)) {
    throw new InputError("wrong-content-type", `content-type must be application/json, not '${type.slice(0, 64)}'`);
  }
  return parseStrictJson(bytes, { ...limits, hasUniqueNames: true });
}

/** Reports whether a body is the literal `null`, with white space around it (RFC 8259 §2). */
const isNull = (bytes: Uint8Array): boolean =>
  bytes.byteLength <= MAX_NULL_BYTES && /^[ \t\r\n]*null[ \t\r\n]*$/.test(Buffer.from(bytes).toString("latin1"));

/** Returns the media type of a request body (RFC 9110 §8.3), in lower case and without parameters. */
export function mediaType(request: Request): string {
  const [type = ""] = (request.headers.get("content-type") ?? "").split(";", 1);
  return type.trim().toLowerCase();
}

/** Removes empty members (null or "") from a body. */
export function withoutBlanks(raw: unknown): unknown {
  if (!isObject(raw)) return raw;
  return Object.fromEntries(Object.entries(raw).filter(([, value]) => value !== null && value !== ""));
}

const tooLarge = (maxBytes: number): InputError =>
  new InputError("too-large", `the body is larger than ${maxBytes} bytes`);
