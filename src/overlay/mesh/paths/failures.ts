import { errnoOf, SessionError, toError } from "../../../errors.ts";
import { OverlayReason } from "../../../protocol/overlay/overlay.ts";

/** Codes by precedence: the first that any gateway returned is reported. */
const PRECEDENCE: readonly string[] = [
  "relay-refused",
  "too-many-flows",
  "out-of-resources",
  "peer-absent",
  "tunnel-lost",
];

/** Returns the failure that best explains why a node was not reached; undefined without failures. Pure. */
export function mostSpecificFailure(failures: readonly SessionError[]): SessionError | undefined {
  const candidates = PRECEDENCE.map((code) => failures.find((failure) => failure.code === code));
  return candidates.find((failure) => failure !== undefined) ?? failures[0];
}

/** Returns the error itself, or wraps it as `tunnel-lost`. */
export function sessionErrorOf(error: unknown): SessionError {
  return error instanceof SessionError ? error : new SessionError("tunnel-lost", toError(error).message);
}

/** Returns the reason in the code of an error. */
export function reasonOf(error: unknown): OverlayReason {
  return OverlayReason.safeParse(errnoOf(error)).data ?? "other";
}
