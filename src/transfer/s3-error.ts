import { AgentError, HostError, InputError, SessionError, toError } from "../errors.ts";

/** What is known of an answer that is a refusal. S3's own message is left out: it may repeat what was signed. */
export interface S3Refusal {
  readonly status: number;
  readonly code: string;
  /** Where the bucket is, when the refusal says so. */
  readonly region: string | undefined;
  /** Milliseconds that the server asks to wait. */
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
/** After this refusal the SDK signs by the store's clock. */
const SKEWED = "RequestTimeTooSkewed";
/** Refusals with a 4xx status that a second attempt may not get: the clock was wrong, or the body came too slowly or altered. */
const PASSING: ReadonlySet<string> = new Set([
  SKEWED,
  "RequestTimeout",
  "OperationAborted",
  "BadDigest",
  "IncompleteBody",
  "XAmzContentSHA256Mismatch",
]);

/** Failures of connections. */
const PASSING_CODES: ReadonlySet<string> = new Set(["resolve-failed", "connect-failed", "proxy-refused", "tls-failed"]);

/** Reads the SDK's error; undefined for one that is no answer. */
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

/** Whether another attempt may go better: the server is too busy or broken, or the connection was. */
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
 * The error that a failed request is told as: its code, and what it was about.
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

/** Errors of connections name no secrets; those of where credentials come from might, and only say that there are none. */
function whyNot(error: unknown): string {
  // The SDK's own message may quote the answer.
  const status = fieldOf(fieldOf(error, "$metadata"), "httpStatusCode");
  if (typeof status === "number" && isSuccess(status)) return "the answer of S3 cannot be read";
  if (!isWithoutCredentials(error)) return toError(error).message;
  return "this machine has no role that gives credentials, and none are configured";
}

/** What the SDK's sources of credentials throw knows whether another source is to be asked. */
const isWithoutCredentials = (error: unknown): boolean => fieldOf(error, "tryNextLink") !== undefined;

const plainCode = (text: string): string | undefined => (/^[A-Za-z0-9.]{1,64}$/.test(text) ? text : undefined);

function fieldOf(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
}

function textIn(value: unknown, name: string): string | undefined {
  const field = fieldOf(value, name);
  return typeof field === "string" ? field : undefined;
}
