import { SessionError, toError } from "../../../errors.ts";

/** Reasons by precedence: when several gateways refused, the first of these that any of them gave is reported. */
const PRECEDENCE: readonly string[] = [
  "relay-refused",
  "too-many-flows",
  "out-of-resources",
  "peer-absent",
  "tunnel-lost",
];

/** The failure that best explains why a node was not reached; undefined if there is none. Pure. */
export function mostSpecificFailure(failures: readonly SessionError[]): SessionError | undefined {
  const candidates = PRECEDENCE.map((code) => failures.find((failure) => failure.code === code));
  return candidates.find((failure) => failure !== undefined) ?? failures[0];
}

/** The error itself, or one that reports that it lost a tunnel. */
export function sessionErrorOf(error: unknown): SessionError {
  return error instanceof SessionError ? error : new SessionError("tunnel-lost", toError(error).message);
}
