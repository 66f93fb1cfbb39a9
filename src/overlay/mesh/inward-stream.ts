import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { Inward, Way } from "./ways.ts";

/**
 * Hands over a stream that a gateway opened on a session this node dialled: spliced bytes from somebody behind it, or what the
 * gateway itself sends. Only this node's own uid is served; for anybody else the gateway has come to the wrong one.
 */
export function takeInward(
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  { self, way, inward }: { readonly self: string; readonly way: Way; readonly inward: Inward },
): void {
  const isSplice = headers[":method"] === "CONNECT" && headers[":protocol"] === undefined;
  if (!isSplice || headers["holdfast-service"] !== undefined) {
    inward.stream(stream, headers, { peer: way.gateway, way });
    return;
  }
  if (headers[":authority"] === `${self}:443`) {
    stream.respond({ ":status": 200 });
    inward.tunnel(stream, way);
    return;
  }
  stream.resume();
  stream.respond({ ":status": 403, "holdfast-reason": "relay-refused" }, { endStream: true });
}
