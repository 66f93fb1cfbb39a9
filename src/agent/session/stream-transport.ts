import type { Dialler } from "../../host/net/dial.ts";
import { webSocketFrames, type FrameSocket } from "../../host/net/frame-socket.ts";
import { STREAM_PATH } from "../../protocol/channel/envelope.ts";
import { STREAM_LIMITS, STREAM_SUBPROTOCOL, TICKET_HEADER } from "../../protocol/channel/streams.ts";
import { transportDial, upgrade, type TransportRequest } from "./transport.ts";

/**
 * Dials the control plane for one stream, at the address of the session, which `request` names.
 * @throws {SessionError} the dialler's, or `upgrade-refused` if the ticket was not accepted.
 */
export type OpenStream = (request: TransportRequest, ticket: string, signal: AbortSignal) => Promise<FrameSocket>;

export function streamTransport(dialler: Dialler, now: () => number): OpenStream {
  return async (request, ticket, signal) => {
    const url = new URL(STREAM_PATH, request.url);
    const { socket } = await dialler.dial(transportDial(request), signal);
    const offer = {
      protocol: STREAM_SUBPROTOCOL,
      maxBytes: STREAM_LIMITS.takenFrameBytes,
      timeoutMs: request.timeoutMs,
      headers: { [TICKET_HEADER]: ticket },
    };
    return webSocketFrames(await upgrade(url, socket, offer, signal, now));
  };
}
