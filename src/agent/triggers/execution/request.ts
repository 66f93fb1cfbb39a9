import { createHash } from "node:crypto";
import { z } from "zod";
import { InputError } from "../../../errors.ts";
import { describeIssues } from "../../../protocol/channel/envelope.ts";

const MAX_ISSUES = 20;
const MAX_ISSUE_LENGTH = 300;

/** The body of an event: none and null mean `{}`. */
function normaliseBody(body: unknown): unknown {
  return body ?? {};
}

/** SHA-256 (hex) by which a repeated id is compared with its first use. */
export function digestOf(body: unknown): string {
  return createHash("sha256")
    .update(JSON.stringify(normaliseBody(body)))
    .digest("hex");
}

/**
 * Parses the body of a trigger. A `name` that repeats the event is dropped unless the event defines it.
 * @throws {InputError} `invalid-body`; details name the first wrong field and list every violation.
 */
export function parseRequest<Request>(event: string, schema: z.ZodType<Request>, body: unknown): Request {
  const parsed = schema.safeParse(withoutName(schema, normaliseBody(body)));
  if (parsed.success) return parsed.data;
  const issues = describeIssues(parsed.error)
    .slice(0, MAX_ISSUES)
    .map((issue) => issue.slice(0, MAX_ISSUE_LENGTH));
  const field = fieldOf(parsed.error.issues[0]).slice(0, MAX_ISSUE_LENGTH) || "body";
  throw new InputError("invalid-body", `${event}: ${issues.join("; ")}`, { details: { field, issues } });
}

function fieldOf(issue: z.core.$ZodIssue | undefined): string {
  if (issue === undefined) return "";
  const unknown = issue.code === "unrecognized_keys" ? issue.keys.slice(0, 1) : [];
  return [...issue.path.map(String), ...unknown].join(".");
}

function withoutName(schema: z.ZodType, body: unknown): unknown {
  if (typeof body !== "object" || body === null || Array.isArray(body)) return body;
  if (schema instanceof z.ZodObject && Object.hasOwn(schema.shape, "name")) return body;
  return Object.fromEntries(Object.entries(body).filter(([key]) => key !== "name"));
}
