import { AgentError, HostError, InputError } from "../../errors.ts";
import { defined } from "../../lib/defined.ts";
import type { DataStoreRequest } from "../../protocol/triggers/data-store.ts";

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

/** Converts an error to the platform's code; the original code is the detail `reason`, and `field` the field of the path. Pure. */
export function storeRefusal(error: Error, field?: string): Error {
  if (!(error instanceof AgentError)) return error;
  const code = CODES[error.code];
  if (code === undefined) return error;
  const details = { ...error.details, reason: error.code };
  return error instanceof InputError
    ? new InputError(code, error.message, { cause: error, details: { ...defined({ field }), ...details } })
    : new HostError(code, error.message, { cause: error, details });
}

/** Returns the field of a request that names its file; of a download's directory and name it is the name. */
export function pathField(request: DataStoreRequest): string | undefined {
  if ("filename" in request) return "filename";
  if ("filePath" in request) return "filePath";
  return "location" in request ? "location" : undefined;
}
