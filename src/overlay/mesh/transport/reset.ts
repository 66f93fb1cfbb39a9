import type { Http2Stream } from "node:http2";

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
