import { InputError } from "../../../errors.ts";
import type { TriggerClaims } from "../../../protocol/documents/claims.ts";

/** Values that verified claims must match. */
export interface Expectation {
  readonly uid: string;
  /** Origin of the control plane this node is registered with. */
  readonly iss: string;
  /** The session that delivered the claims. */
  readonly sid: string;
  /** Session time in milliseconds since 1970; never the wall clock. */
  readonly sessionNow: number;
}

/** Allowed clock difference between control-plane machines. */
const LEEWAY_SECONDS = 60;

/** Returns why verified trigger claims must not be executed, or undefined: `bad-signature` or `replayed`. */
export function judgeTrigger(claims: TriggerClaims, expected: Expectation): InputError | undefined {
  const now = expected.sessionNow / 1000;
  const refuse = (field: string, message: string): InputError =>
    new InputError("bad-signature", `trigger ${claims.jti}: ${message}`, { details: { field } });
  if (claims.iss !== expected.iss) return refuse("iss", "it is from another control plane");
  if (claims.aud !== expected.uid) return refuse("aud", "it is for another node");
  if (claims.iat > now + LEEWAY_SECONDS) return refuse("iat", "it is from the future");
  if (claims.exp <= now) return refuse("exp", "it has expired");
  if (claims.sid !== expected.sid) {
    return new InputError("replayed", `trigger ${claims.jti}: it is for another session`, {
      details: { field: "sid" },
    });
  }
  return undefined;
}
