import type { Http2Stream } from "node:http2";

/**
 * Resets a stream with a code of RFC 9113 §7 and nothing before it. Closing alone would end the writable half first, and the other
 * side would take what it has for the whole.
 */
export function resetStream(stream: Http2Stream, code: number): void {
  if (stream.destroyed || stream.closed) return;
  stream._final = (callback) => callback();
  stream.on("error", ignore);
  stream.close(code);
}

function ignore(): void {}
