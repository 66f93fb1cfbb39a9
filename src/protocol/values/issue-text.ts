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

const FORMATS: ReadonlyMap<string, string> = new Map([
  ["uuid", "a UUID"],
  ["guid", "a UUID"],
  ["ipv4", "an IPv4 address"],
  ["ipv6", "an IPv6 address"],
  ["cidrv4", "an IPv4 network such as 192.0.2.0/24"],
  ["cidrv6", "an IPv6 network such as 2001:db8::/32"],
  ["url", "an address with its scheme, such as https://"],
  ["email", "an e-mail address"],
  ["hostname", "a host name"],
  ["datetime", "an ISO 8601 date and time"],
  ["date", "an ISO 8601 date"],
  ["base64", "base64"],
  ["base64url", "base64url"],
  ["jwt", "a JWT"],
]);
const UNITS: ReadonlyMap<string, readonly [one: string, many: string]> = new Map([
  ["string", ["character", "characters"]],
  ["array", ["item", "items"]],
  ["set", ["item", "items"]],
  ["map", ["entry", "entries"]],
  ["object", ["field", "fields"]],
  ["record", ["field", "fields"]],
]);

/** Returns the problem with a field, to be read after its name; a schema's own message is kept. */
export function issueText(issue: z.core.$ZodIssue): string {
  const { code, message } = issue;
  if (code === "too_small" && message.startsWith("Too small")) {
    return sizeText(issue, issue.minimum, issue.inclusive === false ? "more than" : "at least");
  }
  if (code === "too_big" && message.startsWith("Too big")) {
    return sizeText(issue, issue.maximum, issue.inclusive === false ? "less than" : "at most");
  }
  if (code === "invalid_format" && message.startsWith("Invalid ")) {
    const format = FORMATS.get(issue.format);
    if (format !== undefined) return `must be ${format}`;
    return issue.pattern === undefined ? "has the wrong form" : `must match ${issue.pattern}`;
  }
  if (code === "not_multiple_of" && message.startsWith("Invalid ")) return `must be a multiple of ${issue.divisor}`;
  if (code === "invalid_key" && message.startsWith("Invalid ")) {
    const [inner] = issue.issues;
    return `is no name for a field${inner === undefined ? "" : `: ${issueText(inner)}`}`;
  }
  if (code === "invalid_union" && message.startsWith("Invalid ")) return "has none of the forms it may have";
  if (code === "invalid_element" && message.startsWith("Invalid ")) return "holds an item that is wrong";
  if (code === "custom" && message.startsWith("Invalid ")) return "is not allowed";
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

/** Returns the first problem, without the path. */
export function firstIssueText({ issues: [first] }: z.ZodError): string {
  return first === undefined ? "is wrong" : issueText(first);
}

function sizeText(
  { origin, exact }: { readonly origin: string; readonly exact?: boolean },
  limit: number | bigint,
  bound: string,
): string {
  const unit = UNITS.get(origin);
  const how = exact === true ? "exactly" : bound;
  if (unit === undefined) return `must be ${how} ${limit}`;
  if (how === "at least" && limit === 1)
    return origin === "string" ? "must not be empty" : `needs at least one ${unit[0]}`;
  return `must have ${how} ${limit} ${limit === 1 ? unit[0] : unit[1]}`;
}
