import { AgentError, HostError, InputError } from "../../errors.ts";

/** Platform codes of the store's refusals; other errors have a platform code or are faults. */
const CODES: Readonly<Record<string, string>> = {
  "bad-path": "invalid-body",
  "not-a-directory": "conflict",
  "not-a-file": "conflict",
  exists: "conflict",
  "in-use": "conflict",
  "forbidden-path": "forbidden",
  "read-only": "storage-unavailable",
  "storage-failed": "storage-unavailable",
};

/** Converts an error to the platform's code; the original code is the detail `reason`. Pure. */
export function storeRefusal(error: Error): Error {
  if (!(error instanceof AgentError)) return error;
  const code = CODES[error.code];
  if (code === undefined) return error;
  const options = { cause: error, details: { ...error.details, reason: error.code } };
  return error instanceof InputError
    ? new InputError(code, error.message, options)
    : new HostError(code, error.message, options);
}
