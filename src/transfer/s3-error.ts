import { AgentError, HostError, InputError, SessionError, toError } from "../errors.ts";

/** Fields of an error response. S3's message is omitted, since it may repeat signed data. */
export interface S3Refusal {
  readonly status: number;
  readonly code: string;
  /** Region of the bucket, if reported. */
  readonly region: string | undefined;
  /** Retry delay requested by the server, in milliseconds. */
  readonly retryAfterMs: number | undefined;
}

const NO_CREDENTIALS: ReadonlySet<string> = new Set([
  "InvalidAccessKeyId",
  "SignatureDoesNotMatch",
  "ExpiredToken",
  "InvalidToken",
  "TokenRefreshRequired",
]);
const THROTTLED: ReadonlySet<string> = new Set([
  "SlowDown",
  "Throttling",
  "ThrottlingException",
  "RequestLimitExceeded",
  "TooManyRequests",
]);
/** Error after which the SDK signs by the store's clock. */
const SKEWED = "RequestTimeTooSkewed";
/** 4xx errors that a second attempt may avoid: a wrong clock, or a body that arrived slowly or altered. */
const PASSING: ReadonlySet<string> = new Set([
  SKEWED,
  "RequestTimeout",
  "OperationAborted",
  "BadDigest",
  "IncompleteBody",
  "XAmzContentSHA256Mismatch",
]);

/** Error codes of failed connections. */
const PASSING_CODES: ReadonlySet<string> = new Set(["resolve-failed", "connect-failed", "proxy-refused", "tls-failed"]);

/** Parses an error of the SDK; undefined if it is no response. */
export function refusalOf(error: unknown): S3Refusal | undefined {
  if (!(error instanceof Error)) return undefined;
  const metadata = fieldOf(error, "$metadata");
  const status = fieldOf(metadata, "httpStatusCode");
  if (typeof status !== "number" || isSuccess(status)) return undefined;
  const headers = fieldOf(fieldOf(error, "$response"), "headers");
  const region = textIn(headers, "x-amz-bucket-region") ?? textIn(error, "Region");
  const seconds = Number(textIn(headers, "retry-after") ?? "x");
  return {
    status,
    code: plainCode(textIn(error, "Code") ?? error.name) ?? `status ${status}`,
    region: region !== undefined && /^[a-z0-9-]{1,64}$/.test(region) ? region : undefined,
    retryAfterMs: Number.isFinite(seconds) && seconds >= 0 ? Math.min(seconds, 60) * 1000 : undefined,
  };
}

/** Reports whether a retry may succeed: the server is overloaded or failing, or the connection broke. */
export function isPassing(error: unknown): boolean {
  if (error instanceof InputError || error instanceof HostError) return false;
  if (error instanceof SessionError) return PASSING_CODES.has(error.code);
  const refusal = refusalOf(error);
  if (refusal === undefined) return error instanceof Error && !isWithoutCredentials(error);
  return (
    refusal.status >= 500 ||
    refusal.status === 429 ||
    refusal.status === 408 ||
    isBusy(refusal) ||
    PASSING.has(refusal.code)
  );
}

/**
 * Converts a failed request to the error that is reported.
 * `no-such-bucket`, `no-such-key`, `bad-credentials`, `no-credentials`, `access-denied`, `clock-skew`, `source-changed`, `throttled`, `s3-failed`.
 */
export function s3Error(error: unknown, what: string): AgentError {
  if (error instanceof AgentError) return error;
  const refusal = refusalOf(error);
  if (refusal === undefined) {
    const code = isWithoutCredentials(error) ? "no-credentials" : "s3-failed";
    return new SessionError(code, `${what}: ${whyNot(error)}`);
  }
  if (refusal.code === SKEWED) {
    const text = `${what}: S3 answered ${SKEWED} (${refusal.status}): the clock of this machine or of the store is wrong; correct it`;
    return new SessionError("clock-skew", text, { details: { status: refusal.status, code: refusal.code } });
  }
  const text = `${what}: S3 answered ${refusal.code} (${refusal.status})`;
  const details = { status: refusal.status, code: refusal.code };
  if (refusal.code === "NoSuchBucket") return new InputError("no-such-bucket", text, { details });
  if (refusal.code === "NoSuchKey" || refusal.code === "NotFound")
    return new InputError("no-such-key", text, { details });
  if (refusal.status === 412)
    return new SessionError("source-changed", `${what}: the object was changed meanwhile`, { details });
  if (NO_CREDENTIALS.has(refusal.code)) return new InputError("bad-credentials", text, { details });
  if (refusal.status === 401 || refusal.status === 403) return new InputError("access-denied", text, { details });
  if (isBusy(refusal)) return new SessionError("throttled", text, { details });
  const elsewhere = refusal.region === undefined ? "" : `; the bucket is in the region ${refusal.region}`;
  return new SessionError("s3-failed", `${text}${elsewhere}`, { details });
}

const isSuccess = (status: number): boolean => status >= 200 && status < 300;

const isBusy = ({ status, code }: S3Refusal): boolean => status === 429 || THROTTLED.has(code);

/** Returns a safe reason. Errors of connections name no secrets; those of credential sources might and are replaced. */
function whyNot(error: unknown): string {
  // The SDK's message may quote the response.
  const status = fieldOf(fieldOf(error, "$metadata"), "httpStatusCode");
  if (typeof status === "number" && isSuccess(status)) return "the answer of S3 cannot be read";
  if (!isWithoutCredentials(error)) return toError(error).message;
  return "this machine has no role that gives credentials, and none are configured";
}

/** Error of a credential source of the SDK, which says whether to try the next source. */
const isWithoutCredentials = (error: unknown): boolean => fieldOf(error, "tryNextLink") !== undefined;

const plainCode = (text: string): string | undefined => (/^[A-Za-z0-9.]{1,64}$/.test(text) ? text : undefined);

function fieldOf(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
}

function textIn(value: unknown, name: string): string | undefined {
  const field = fieldOf(value, name);
  return typeof field === "string" ? field : undefined;
}
