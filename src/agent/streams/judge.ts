import { createHash } from "node:crypto";
import { InputError } from "../../errors.ts";
import type { StreamClaims } from "../../protocol/documents/claims.ts";

/** What verified claims must match to be obeyed here and now. */
export interface StreamExpectation {
  readonly uid: string;
  /** Origin of the control plane this node is registered with. */
  readonly iss: string;
  /** The session the claims came in by. */
  readonly sid: string;
  /** The ticket that came with them. */
  readonly ticket: string;
  /** Session time in milliseconds since 1970: never the wall clock. */
  readonly sessionNow: number;
}

/** Clocks of several control-plane machines may differ by this much. */
const LEEWAY_SECONDS = 60;

/** Why verified claims must not be obeyed, or undefined when they may be: `bad-signature` or `replayed`. */
export function judgeStream(claims: StreamClaims, expected: StreamExpectation): InputError | undefined {
  const now = expected.sessionNow / 1000;
  const refuse = (field: string, message: string): InputError =>
    new InputError("bad-signature", `stream ${claims.jti}: ${message}`, { details: { field } });
  if (claims.iss !== expected.iss) return refuse("iss", "it is from another control plane");
  if (claims.aud !== expected.uid) return refuse("aud", "it is for another node");
  if (claims.iat > now + LEEWAY_SECONDS) return refuse("iat", "it is from the future");
  if (claims.exp <= now) return refuse("exp", "it has expired");
  if (claims.th !== ticketHash(expected.ticket)) return refuse("th", "the ticket is for another stream");
  if (claims.sid !== expected.sid) {
    return new InputError("replayed", `stream ${claims.jti}: it is for another session`, { details: { field: "sid" } });
  }
  return undefined;
}

function ticketHash(ticket: string): string {
  return createHash("sha256").update(ticket).digest("base64url");
}
