import { AgentError, HostError, InputError, InternalError } from "../../errors.ts";
import { errorCodes, isErrorCode } from "../../protocol/values/error-codes.ts";
import { defined } from "../../lib/defined.ts";

/** HTTP statuses of error codes that only the API has. */
const httpCodes = {
  unauthorized: 401,
  forbidden: 403,
  "unknown-path": 404,
  "wrong-method": 405,
  "name-taken": 409,
  "policy-in-use": 409,
  "legacy-form": 409,
  "item-collision": 409,
  "cluster-member": 409,
  "too-large": 413,
  "uri-too-long": 414,
  "wrong-content-type": 415,
  "invalid-json": 400,
  "invalid-utf8": 400,
  "too-deep": 422,
  "forbidden-key": 422,
  "invalid-query": 422,
  "too-many-failures": 429,
  overloaded: 503,
  "store-unavailable": 503,
} as const satisfies Record<string, number>;

/** Retry delay of overload errors, in seconds; the load passes quickly. */
const RETRY_SECONDS = "5";

/** A body, query or section that violates its schema; sent as a JSON array of strings, each prefixed with the field. */
export class Violations extends InputError {
  static override readonly name = "Violations";
  readonly lines: readonly string[];

  constructor(lines: readonly string[]) {
    super("invalid-body", lines.join("; "));
    this.lines = lines.slice(0, 100);
  }
}

/** Runs `work` and turns input errors with these codes into violations prefixed with `root`. */
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

/** Public part of a failed request's error, used in responses and in the last line of a stream. */
export interface Refusal {
  readonly status: number;
  readonly code: string;
  readonly message: string;
  readonly details: AgentError["details"];
  /** Set for a fault of this program, which is logged. */
  readonly isFault: boolean;
}

/** Converts a thrown error; a fault reveals no details. */
export function refusalOf(thrown: unknown): Refusal {
  const status = statusOf(thrown);
  if (!(thrown instanceof AgentError) || status === undefined) {
    return { status: 500, code: "internal", message: "internal error", details: undefined, isFault: true };
  }
  return { status, code: thrown.code, message: thrown.message, details: thrown.details, isFault: isStoreFault(thrown) };
}

/** Returns the HTTP status, or undefined for a fault. A session error has the node's code, which may be unknown here. */
function statusOf(thrown: unknown): number | undefined {
  if (!(thrown instanceof AgentError) || thrown instanceof InternalError) return undefined;
  if (isErrorCode(thrown.code)) return errorCodes[thrown.code].http;
  if (thrown instanceof InputError) return isHttpCode(thrown.code) ? httpCodes[thrown.code] : 422;
  if (thrown instanceof HostError) return thrown.code === "store-unavailable" ? httpCodes[thrown.code] : undefined;
  return 502;
}

/** Reports whether the store could not be used: logged, and shown with its reason. */
const isStoreFault = ({ code }: AgentError): boolean => code === "storage-unavailable" || code === "store-unavailable";

const isHttpCode = (code: string): code is keyof typeof httpCodes => Object.hasOwn(httpCodes, code);

/** Returns the response to a failed request: `{error, code, details?}`, or an array of strings for violations. */
export function problemResponse(thrown: unknown, headers: Readonly<Record<string, string>> = {}): Response {
  if (thrown instanceof Violations) return Response.json(thrown.lines, { status: 422, headers });
  const { status, code, message, details } = refusalOf(thrown);
  const later = code === "overloaded" || code === "store-unavailable" ? { "retry-after": RETRY_SECONDS } : {};
  const isViolation = thrown instanceof InputError && (code === "invalid-query" || code === "invalid-body");
  if (isViolation) return Response.json([message], { status, headers });
  return Response.json(
    { error: message, code, ...defined({ details }) },
    { status, headers: { ...later, ...headers } },
  );
}
