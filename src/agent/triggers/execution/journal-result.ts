import type { TriggerReply } from "./trigger.ts";

/** Limit of a stored result, in bytes of JSON. */
const MAX_STORED_BYTES = 64 * 1024;
/** Characters that are kept of a text that is too long: escaping can take six bytes for a character. */
const FIRST_PART_CHARACTERS = 10_000;
const REDACTED = "[redacted]";
const SECRET_NAME = /secret|password|passphrase|private|token|credential|psk|api_?key/i;

/** Returns the stored form of a reply: without values named like secrets, and at most 64 KiB. */
export function storedForm(reply: TriggerReply): string {
  const text = JSON.stringify(reply, redact);
  if (Buffer.byteLength(text) <= MAX_STORED_BYTES) return text;
  if ("error" in reply) {
    const { code, message } = reply.error;
    return JSON.stringify({ error: { code, message, details: { truncated: true } } });
  }
  const message = outputMessage(reply.body);
  const body =
    message === undefined
      ? { truncated: true, part: firstPart(JSON.stringify(reply.body, redact)) }
      : { output: { ...message.output, message: firstPart(message.text), truncated: true } };
  const shortened = JSON.stringify({ body }, redact);
  // Other parts of so large an output cannot be kept either.
  return Buffer.byteLength(shortened) <= MAX_STORED_BYTES ? shortened : JSON.stringify({ body: { truncated: true } });
}

/** Parses the form that `storedForm` wrote. */
export function fromStored(text: string): TriggerReply {
  return JSON.parse(text) as TriggerReply;
}

function redact(key: string, value: unknown): unknown {
  return SECRET_NAME.test(key) && typeof value === "string" ? REDACTED : value;
}

function firstPart(text: string): string {
  return text.slice(0, FIRST_PART_CHARACTERS).replace(/[\uD800-\uDBFF]$/, "");
}

function outputMessage(body: unknown): { readonly output: object; readonly text: string } | undefined {
  if (typeof body !== "object" || body === null || !("output" in body)) return undefined;
  const { output } = body;
  if (typeof output !== "object" || output === null || !("message" in output)) return undefined;
  return typeof output.message === "string" ? { output, text: output.message } : undefined;
}
