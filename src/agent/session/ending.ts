import { AgentError, SessionError } from "../../errors.ts";
import { closeCodes } from "../../protocol/channel/methods.ts";
import type { Ending } from "./backoff.ts";
import type { TransportEnd } from "./transport.ts";

/** The evidence of the peer's identity when the connection ended. */
export interface Evidence {
  /** Its proof was verified. */
  readonly isProven: boolean;
  /** It sent a genuine statement for this attempt that the node was deleted. */
  readonly isDeleted: boolean;
}

const DEFAULT_WAIT_SECONDS = 60;
const TOO_LARGE = 1009; // RFC 6455 §7.4.1
/** Failures of the server: an internal error, a restart, overload (RFC 6455 §7.4.1 and the IANA registry). */
const SERVERS_TROUBLE: ReadonlySet<number> = new Set([1011, 1012, 1013]);

/**
 * Returns the meaning and the name of a connection's end. A close code of an unauthenticated peer is ignored, except that 4001 slows
 * down the next attempt. Pure.
 */
export function judgeEnd(
  { closeCode, reason, ours }: TransportEnd,
  { isProven, isDeleted }: Evidence,
): { readonly ending: Ending; readonly error: SessionError } {
  // The node acts on the number and ignores the reason next to it.
  const words = reason === "" ? "" : `: ${reason}`;
  const message = closeCode === undefined ? reason : `closed with ${closeCode}${words}`;
  const named = (code: string, ending: Ending) => ({ ending, error: new SessionError(code, message) });
  if (ours !== undefined) return named(ours, { kind: "failed" });
  switch (closeCode) {
    case undefined:
      return named("connection-lost", { kind: "failed" });
    case TOO_LARGE:
      return named("too-large", { kind: "failed" });
    case closeCodes["not-authentic"]:
      return named("not-authentic", { kind: "not-authentic" });
    case closeCodes.deleted:
      return isDeleted ? named("deleted", { kind: "deleted" }) : named("not-authentic", { kind: "not-authentic" });
    case closeCodes.superseded:
      if (isProven) return named("superseded", { kind: "superseded" });
      break;
    case closeCodes["protocol-version"]:
      if (isProven) return named("protocol-version", { kind: "protocol-version" });
      break;
    case closeCodes["too-many"]:
      if (isProven) return named("too-many", { kind: "asked-to-wait", delayMs: secondsIn(reason) * 1000 });
      break;
    default:
      if (isProven && SERVERS_TROUBLE.has(closeCode)) return named("server-error", { kind: "failed" });
  }
  return named("connection-closed", { kind: "failed" });
}

/**
 * Names the refusal of a hello. The peer has proved nothing; but under a TLS key that is not pinned, somebody in the
 * middle is the likely cause, and the control plane would refuse our proof for the same reason. Pure.
 */
export function judgeRefusal(refusal: Error, tlsKey: string | undefined, pins: readonly string[]): SessionError {
  const isForeign = tlsKey !== undefined && !pins.includes(tlsKey);
  const reason = refusal instanceof AgentError ? `${refusal.code}: ${refusal.message}` : refusal.message;
  const message = isForeign
    ? `hello was refused over a TLS key that is not pinned, as when TLS is intercepted: ${reason}`
    : `hello was refused: ${reason}`;
  return new SessionError(isForeign ? "tls-intercepted" : "not-authentic", message, { cause: refusal });
}

function secondsIn(reason: string): number {
  return Number(/^\d+/.exec(reason)?.[0] ?? DEFAULT_WAIT_SECONDS);
}
