import { AgentError, InputError, InternalError, toError } from "../../errors.ts";
import { errorCodes, isErrorCode } from "../../protocol/error-codes.ts";

/** Statuses of the codes that only the HTTP side has. */
const httpCodes = {
  unauthorized: 401,
  forbidden: 403,
  "unknown-path": 404,
  "wrong-method": 405,
  "name-taken": 409,
  "policy-in-use": 409,
  "too-large": 413,
  "uri-too-long": 414,
  "wrong-content-type": 415,
  "invalid-json": 400,
  "invalid-utf8": 400,
  "too-deep": 422,
  "forbidden-key": 422,
  "invalid-query": 422,
} as const satisfies Record<string, number>;

/** A body, a query or a section that breaks its schema: answered as a JSON array of strings, each led by the field. */
export class Violations extends InputError {
  readonly lines: readonly string[];

  constructor(lines: readonly string[]) {
    super("invalid-body", lines.join("; "));
    this.lines = lines.slice(0, 100);
  }
}

/** The HTTP status of an error code; of an unknown one 502, since only a node's own answer can bring it. */
export function statusOf(code: string): number {
  if (isErrorCode(code)) return errorCodes[code].http;
  return Object.hasOwn(httpCodes, code) ? httpCodes[code as keyof typeof httpCodes] : 502;
}

/** Runs `work` and turns what it refuses about its input into violations led by `root`. */
export async function withViolations<T>(
  root: string,
  codes: readonly string[],
  work: () => T | Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof Violations || !(error instanceof InputError) || !codes.includes(error.code)) throw error;
    throw new Violations([`${root}: ${error.message}`]);
  }
}

/** The answer to a failed request: `{error, code, details?}`, or an array of strings for violations. */
export function problemResponse(thrown: unknown, headers: Readonly<Record<string, string>> = {}): Response {
  if (thrown instanceof Violations) return Response.json(thrown.lines, { status: 422, headers });
  const { code, message, details } = describe(thrown);
  const status = statusOf(code);
  if (code === "invalid-query") return Response.json([message], { status, headers });
  return Response.json({ error: message, code, ...(details === undefined ? {} : { details }) }, { status, headers });
}

/** What may be told of an error: a bug tells nothing of itself. */
export function describe(thrown: unknown): { code: string; message: string; details: unknown } {
  const error = toError(thrown);
  if (!(error instanceof AgentError) || error instanceof InternalError) {
    return { code: "internal", message: "internal error", details: undefined };
  }
  return { code: error.code, message: error.message, details: error.details };
}

/** Whether an error is a fault of the program, to be logged, and not an answer. */
export const isFault = (thrown: unknown): boolean => describe(thrown).code === "internal";
