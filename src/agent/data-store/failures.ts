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

/** The error under the code that the caller is told; its own code is in the details, as `reason`. Pure. */
export function storeRefusal(error: Error): Error {
  if (!(error instanceof AgentError)) return error;
  const code = CODES[error.code];
  if (code === undefined) return error;
  const options = { cause: error, details: { ...error.details, reason: error.code } };
  return error instanceof InputError
    ? new InputError(code, error.message, options)
    : new HostError(code, error.message, options);
}
