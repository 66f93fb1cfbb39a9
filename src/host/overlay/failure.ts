import { HostError, InputError, SessionError, toError } from "../../errors.ts";
import { RemoteError } from "../../protocol/channel/rpc.ts";

/** Whether it answered something that this version cannot read. */
export function isNonsense(error: unknown): boolean {
  return error instanceof SessionError && error.code === "invalid-result";
}

/** An error of the connection as one of the machine, which is what the overlay is to its sections: `overlay-refused` or `overlay-failed`. */
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
