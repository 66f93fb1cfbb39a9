import { AgentError, HostError, InputError, InternalError } from "../../errors.ts";
import { errorCodes, isErrorCode } from "../../protocol/values/error-codes.ts";
import { defined } from "../../lib/defined.ts";
import { shorten } from "../../lib/text/shorten.ts";

/** HTTP statuses of error codes that only the API has; every other `InputError` is a refusal of content, 422. */
const httpCodes = {
  unauthorized: 401,
  forbidden: 403,
  "unknown-path": 404,
  "wrong-method": 405,
  "too-large": 413,
  "uri-too-long": 414,
  "wrong-content-type": 415,
  "too-many-failures": 429,
  overloaded: 503,
  "store-unavailable": 503,
} as const satisfies Record<string, number>;

/** Statuses of platform codes in the API, where they differ from the platform's table. */
const apiCodes: Readonly<Record<string, number>> = {
  // Clients know 422 as the only status of a refusal.
  "unknown-event": 422,
  busy: 422,
  inactive: 422,
  "out-of-sync": 422,
  replayed: 422,
  conflict: 422,
  "unauthorized-ip": 422,
  // The node refuses the controller's signature; the caller's credential is valid.
  "bad-signature": 502,
};

/** Retry delay of overload errors, in seconds; the load passes quickly. */
const RETRY_SECONDS = "5";
/** Longest line of a refusal: it may repeat what the caller sent. */
const MAX_LINE_CHARS = 2048;

/** A body, query or section that violates its schema; sent as a JSON array of strings, each prefixed with the field. */
export class Violations extends InputError {
  static override readonly name = "Violations";
  readonly lines: readonly string[];

  constructor(lines: readonly string[]) {
    super("invalid-body", lines.join("; "));
    this.lines = lines.slice(0, 100);
  }
}

/** Runs `work` and turns input errors with these codes into violations prefixed with `root`, or with the field that they name. */
export async function withViolations<T>(
  root: string,
  codes: readonly string[],
  work: () => T | Promise<T>,
  /** Prefix of the fields that errors name. */
  above?: string,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof Violations || !(error instanceof InputError) || !codes.includes(error.code)) throw error;
    throw new Violations([lineOf(error, root, above)]);
  }
}

/** Returns the line of a refusal: its field, or `root`, and the message. */
function lineOf({ message, details }: AgentError, root?: string, above?: string): string {
  const field = details?.["field"];
  const below = above === undefined ? "" : `${above}.`;
  const path = typeof field === "string" ? `${below}${field}` : root;
  return path === undefined || message.startsWith(`${path}:`) || message.startsWith(`${path}.`)
    ? message
    : `${path}: ${message}`;
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
  if (isErrorCode(thrown.code)) return apiCodes[thrown.code] ?? errorCodes[thrown.code].http;
  if (thrown instanceof InputError) return isHttpCode(thrown.code) ? httpCodes[thrown.code] : 422;
  if (thrown instanceof HostError) return thrown.code === "store-unavailable" ? httpCodes[thrown.code] : undefined;
  return 502;
}

/** Reports whether the store could not be used: logged, and shown with its reason. */
const isStoreFault = ({ code }: AgentError): boolean => code === "storage-unavailable" || code === "store-unavailable";

const isHttpCode = (code: string): code is keyof typeof httpCodes => Object.hasOwn(httpCodes, code);

/**
 * Returns the response to a failed request: an array of strings for a refusal of content (422), otherwise `{code, message, details?}`, with
 * the message as `error`, too.
 */
export function problemResponse(thrown: unknown, headers: Readonly<Record<string, string>> = {}): Response {
  const { status, code, message, details } = refusalOf(thrown);
  if (status === 422) return Response.json(linesOf(thrown, message), { status, headers });
  const later = code === "overloaded" || code === "store-unavailable" ? { "retry-after": RETRY_SECONDS } : {};
  return Response.json(
    { error: message, code, message, ...defined({ details }) },
    { status, headers: { ...later, ...headers } },
  );
}

function linesOf(thrown: unknown, message: string): readonly string[] {
  const only = thrown instanceof AgentError ? lineOf(thrown) : message;
  const lines = thrown instanceof Violations ? thrown.lines : [only];
  return lines.map((line) => shorten(line, MAX_LINE_CHARS));
}
