import { DatabaseError } from "pg";
import { AgentError, errnoOf, HostError, InputError, toError } from "../../errors.ts";
import { UNKNOWN_ISSUER } from "../../host/net/authorities.ts";

/** Reports whether a transaction failed only because of another one: 40001 serialization failure, 40P01 deadlock. */
export function isConflict(error: unknown): boolean {
  return error instanceof DatabaseError && (error.code === "40001" || error.code === "40P01");
}

/**
 * SQLSTATEs, or their first two characters, with which the server refuses all work for a reason of its own
 * (https://www.postgresql.org/docs/current/errcodes-appendix.html).
 */
const REFUSALS: readonly string[] = [
  "08", // connection
  "25006", // takes no writes: a standby
  "25P03", // idle in a transaction for too long
  "28", // user or password
  "3D", // no such database
  "42501", // lacks a right
  "53", // no disk space, no memory, too many connections
  "55P03", // waited too long for a lock
  "57", // shutting down, starting, crashed, or the time limit of a statement
  "58", // a failed system call
];

/** Reports whether the connection may still be used after an error: only an error that the server sent leaves it in order. */
export function isConnectionUsable(error: unknown): boolean {
  return error instanceof DatabaseError && !["08", "57P"].some((begin) => error.code?.startsWith(begin));
}

/**
 * Returns the error that callers see: `store-unavailable` with the reason if the server cannot be reached or refuses all work; the
 * error itself if the statement is wrong, or conflicts.
 */
export function storeError(error: unknown, address: string): unknown {
  if (error instanceof AgentError) return error;
  if (error instanceof DatabaseError) {
    const code = error.code ?? "";
    if (code === "22021") {
      return new InputError("invalid-body", "text with the character U+0000 cannot be stored", { cause: error });
    }
    if (!REFUSALS.some((begin) => code.startsWith(begin))) return error;
  }
  return unavailable(address, reasonOf(error), error);
}

export function unavailable(address: string, reason: string, cause?: unknown): HostError {
  return new HostError("store-unavailable", `the store ${address} cannot be used: ${reason}`, { cause });
}

/** Node reports several addresses that all failed as an error without a message, and advises options of its own for certificates. */
function reasonOf(error: unknown): string {
  const code = errnoOf(error) ?? "";
  // A signature fails if the issuer has the name of a trusted authority and another key.
  if (UNKNOWN_ISSUER.has(code) || code === "CERT_SIGNATURE_FAILURE") {
    return "no trusted authority has issued the certificate of the server; give the authority's by --store-ca-file";
  }
  if (error instanceof AggregateError) return error.errors.map((one) => toError(one).message).join("; ");
  return toError(error).message;
}
