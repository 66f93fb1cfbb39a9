import type { Http2Stream } from "node:http2";
import { OverlayReason } from "../../protocol/overlay/overlay.ts";

// Error codes of HTTP/2 streams (RFC 9113 §7). Importing node:http2 for them would load all of it on a node without
// peers.
export const NO_ERROR = 0;
export const PROTOCOL_ERROR = 1;
const INTERNAL_ERROR = 2;
export const REFUSED_STREAM = 7;
export const CANCEL = 8;
const CONNECT_ERROR = 10;
export const ENHANCE_YOUR_CALM = 11;
const INADEQUATE_SECURITY = 12;

/** Codes with which streams are reset (RFC 9113 §7). Other implementations take the codes of our own as an unspecified failure. */
const codes: Readonly<Partial<Record<OverlayReason, number>>> = {
  reset: CONNECT_ERROR,
  removed: CANCEL,
  "not-granted": INADEQUATE_SECURITY,
  "out-of-resources": ENHANCE_YOUR_CALM,
  idle: 0x4846_0001,
  unreachable: 0x4846_0002,
  "connect-refused": 0x4846_0003,
  "resolve-failed": 0x4846_0004,
  "tunnel-lost": 0x4846_0005,
  "source-not-permitted": 0x4846_0006,
  "literal-not-permitted": 0x4846_0007,
};

const reasonsOfCodes = new Map(
  Object.entries(codes).map(([reason, code]) => [code, OverlayReason.catch("other").parse(reason)]),
);

/** Returns the code with which a stream is reset for a reason. */
export function codeOf(reason: OverlayReason): number {
  return codes[reason] ?? INTERNAL_ERROR;
}

/** Returns the reason for which the other side reset a stream. */
export function reasonOfCode(code: number): OverlayReason {
  return code === NO_ERROR ? "reset" : (reasonsOfCodes.get(code) ?? "other");
}

/**
 * Resets a stream with a code of RFC 9113 §7 without ending it in order first, which would make the other side take its
 * bytes as complete.
 */
export function resetStream(stream: Http2Stream, code: number): void {
  if (stream.destroyed || stream.closed) return;
  stream._final = (callback) => callback();
  stream.on("error", ignore);
  stream.close(code);
}

function ignore(): void {}
