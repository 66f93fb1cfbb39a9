import type { z } from "zod";

const KINDS: ReadonlyMap<string, string> = new Map([
  ["string", "text"],
  ["number", "a number"],
  ["int", "a whole number"],
  ["boolean", "true or false"],
  ["object", "an object"],
  ["record", "an object"],
  ["array", "a list"],
  ["null", "null"],
]);
const WRONG_TYPE = /^Invalid input: expected \w+, received (\w+)$/;

/** What is wrong with a field, to be read after its name; a schema's own message stays as it is. */
export function issueText(issue: z.core.$ZodIssue): string {
  const { code, message } = issue;
  if (code === "invalid_type") {
    // The kind of what came is nowhere but in the library's message.
    const received = WRONG_TYPE.exec(message)?.[1];
    const expected = KINDS.get(issue.expected);
    if (received === "undefined") return "is missing";
    if (received === undefined || expected === undefined) return message;
    if (received === "number" && issue.expected === "int") return "must be a whole number";
    return `must be ${expected}, not ${KINDS.get(received) ?? received}`;
  }
  if (code === "invalid_value" && message.startsWith("Invalid ")) {
    return `must be ${issue.values.length === 1 ? "" : "one of "}${issue.values.map(String).join(", ")}`;
  }
  if (code === "unrecognized_keys" && message.startsWith("Unrecognized ")) {
    return `has unknown fields: ${issue.keys.join(", ")}`;
  }
  return message;
}
