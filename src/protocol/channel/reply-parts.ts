import { z } from "zod";
import { SessionError } from "../../errors.ts";
import { parseStrictJson, type JsonLimits } from "../../lib/formats/strict-json.ts";

/** An answer larger than this many bytes of JSON comes in parts if the caller streams output. */
export const WHOLE_REPLY_BYTES = 48 * 1024;
/** Limits of an answer joined from parts. */
export const REPLY_LIMITS: JsonLimits = { maxBytes: 16 * 1024 * 1024, maxDepth: 64 };
/** Maximum characters of one part; any text of this length fits one message. */
const PART_CHARACTERS = 16 * 1024;

/** One piece of the JSON text of an answer, as the output `json` of its trigger. */
export const ReplyPart = z
  .strictObject({ replyPart: z.string().max(PART_CHARACTERS) })
  .meta({ id: "ReplyPart", description: "A piece of the JSON text of an answer that no one message holds" });
export type ReplyPart = z.infer<typeof ReplyPart>;

/** Result of a trigger whose answer was sent in parts before. */
export const RepliedInParts = z
  .strictObject({ replyBytes: z.int().min(1) })
  .meta({ id: "RepliedInParts", description: "How many bytes the parts before it make, as UTF-8" });
export type RepliedInParts = z.infer<typeof RepliedInParts>;

/** Splits the JSON text of an answer. */
export function* replyParts(text: string): Generator<ReplyPart> {
  for (let at = 0; at < text.length;) {
    const high = text.charCodeAt(at + PART_CHARACTERS - 1);
    const isCutPair = high >= 0xd800 && high <= 0xdbff;
    const length = isCutPair ? PART_CHARACTERS - 1 : PART_CHARACTERS;
    yield { replyPart: text.slice(at, at + length) };
    at += length;
  }
}

/** Joins the parts of an answer. */
export class ReplyCollector {
  readonly #parts: string[] = [];
  #bytes = 0;

  /** Adds an output of a trigger if it is a part of the answer; reports whether it was. @throws {SessionError} `too-large`. */
  take(data: unknown): boolean {
    const parsed = ReplyPart.safeParse(data);
    if (!parsed.success) return false;
    const { replyPart } = parsed.data;
    this.#bytes += Buffer.byteLength(replyPart);
    if (this.#bytes > REPLY_LIMITS.maxBytes) {
      throw new SessionError("too-large", `the answer has more than ${REPLY_LIMITS.maxBytes} bytes`);
    }
    this.#parts.push(replyPart);
    return true;
  }

  /** Returns the answer: the result itself, or its joined parts. @throws {SessionError} `interrupted` if parts are missing; {InputError} as `parseStrictJson`. */
  whole(result: unknown): unknown {
    const parsed = RepliedInParts.safeParse(result);
    if (!parsed.success) return result;
    if (parsed.data.replyBytes !== this.#bytes) {
      throw new SessionError("interrupted", `of an answer of ${parsed.data.replyBytes} bytes came ${this.#bytes}`);
    }
    return parseStrictJson(this.#parts.join(""), REPLY_LIMITS);
  }
}
