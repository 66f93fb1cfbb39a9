import { HostError, InputError, SessionError, toError } from "../../errors.ts";
import { RemoteError } from "../../protocol/channel/rpc.ts";

/** Reports whether the overlay's answer cannot be parsed by this version. */
export function isNonsense(error: unknown): boolean {
  return error instanceof SessionError && error.code === "invalid-result";
}

/** Converts an error of the connection to a host error for the sections: `overlay-refused` or `overlay-failed`. */
export function overlayFailure(thrown: unknown): Error {
  const error = toError(thrown);
  if (!(error instanceof SessionError) && !(error instanceof InputError)) return error;
  const options = { cause: error };
  if (error instanceof RemoteError) {
    return new HostError("overlay-refused", `the overlay refuses: ${error.message}`, options);
  }
  if (isNonsense(error)) {
    return new HostError("overlay-failed", `the overlay is of another version: ${error.message}`, options);
  }
  return new HostError("overlay-failed", `the overlay failed: ${error.message}`, options);
}

/** Reports whether the overlay does not know the request, because it is of an older version. */
export function isUnknownCall(error: unknown): boolean {
  return error instanceof RemoteError && error.code === "unknown-method";
}

export function olderOverlay(cause?: unknown): HostError {
  const message = "the running overlay is older than this agent and does not support this request; restart its service";
  return new HostError("overlay-older", message, cause === undefined ? {} : { cause });
}

/** Rethrows the error of a request, as `overlay-older` when the overlay does not know the request. */
export function rethrowOlder(error: unknown): never {
  throw isUnknownCall(error) ? olderOverlay(error) : error;
}
