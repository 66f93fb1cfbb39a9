import { expect, test } from "vitest";
import { HostError, InputError, SessionError } from "../../../src/errors.ts";
import { isPassing, s3Error } from "../../../src/transfer/s3-error.ts";

/** An error as thrown by the SDK. */
function refusal(status: number, code: string, more: object = {}): Error {
  const error = new Error("AKIDEXAMPLE signed it with Signature=0123");
  return Object.assign(error, { name: code, Code: code, $metadata: { httpStatusCode: status }, ...more });
}

test.each([
  [refusal(404, "NoSuchBucket"), "no-such-bucket", false],
  [refusal(404, "NoSuchKey"), "no-such-key", false],
  [refusal(403, "AccessDenied"), "access-denied", false],
  [refusal(403, "SignatureDoesNotMatch"), "bad-credentials", false],
  [refusal(400, "ExpiredToken"), "bad-credentials", false],
  [refusal(403, "RequestTimeTooSkewed"), "clock-skew", true],
  [refusal(200, "SyntaxError"), "s3-failed", true],
  [refusal(412, "PreconditionFailed"), "source-changed", false],
  [refusal(503, "SlowDown"), "throttled", true],
  [refusal(429, "TooManyRequests"), "throttled", true],
  [refusal(500, "InternalError"), "s3-failed", true],
  [refusal(400, "RequestTimeout"), "s3-failed", true],
  [refusal(400, "InvalidRequest"), "s3-failed", false],
  [new Error("read ECONNRESET"), "s3-failed", true],
  [Object.assign(new Error("no role"), { tryNextLink: true }), "no-credentials", false],
  [new InputError("forbidden-address", "no"), "forbidden-address", false],
  [new HostError("disk-full", "no"), "disk-full", false],
  [new SessionError("connect-failed", "no"), "connect-failed", true],
  [new SessionError("tls-untrusted", "no"), "tls-untrusted", false],
])("reports %s as %s; another attempt may succeed: %s", (error, code, passing) => {
  expect(s3Error(error, "s3://b/k").code).toBe(code);
  expect(isPassing(error)).toBe(passing);
});

test("repeats neither the message of S3 nor an invalid code", () => {
  expect(s3Error(refusal(403, "SignatureDoesNotMatch"), "s3://b/k").message).toBe(
    "s3://b/k: S3 answered SignatureDoesNotMatch (403)",
  );
  const strange = refusal(400, "Signature=0123 is wrong");
  expect(s3Error(strange, "s3://b/k").message).toBe("s3://b/k: S3 answered status 400 (400)");
});

test("does not repeat an unreadable answer", () => {
  expect(s3Error(refusal(200, "SyntaxError"), "s3://b/k").message).toBe("s3://b/k: the answer of S3 cannot be read");
});

test("reports a bucket in another region as such", () => {
  const moved = refusal(301, "PermanentRedirect", { $response: { headers: { "x-amz-bucket-region": "eu-south-2" } } });
  expect(s3Error(moved, "s3://b/k").message).toContain("the bucket is in the region eu-south-2");
});
