import { connect, type Socket } from "node:net";
import { HostError, SessionError, toError } from "../../errors.ts";
import { linesOf } from "../../lib/text/lines.ts";
import { parseMessage } from "../../protocol/channel/envelope.ts";
import {
  OVERLAY_LIMITS,
  overlayMethods,
  overlayNotices,
  type OverlayMethods,
  type OverlayNotices,
} from "../../protocol/overlay/overlay.ts";
import { RpcPeer, type Handlers } from "../../protocol/channel/rpc.ts";

/** A connection to an overlay's control socket. */
export interface ControlClient {
  readonly peer: RpcPeer<OverlayNotices, OverlayMethods>;
  close(): void;
}

/**
 * Connects to the control socket at `path`. `handlers` receive the overlay's notifications; `onEnd` is called when the
 * connection ends.
 * @throws {HostError} `socket-failed` when no process serves it.
 */
export async function connectControl(
  path: string,
  handlers: Handlers<OverlayNotices>,
  onEnd: () => void = () => undefined,
): Promise<ControlClient> {
  const socket = connect(path);
  await new Promise<void>((resolve, reject) => {
    socket.once("connect", resolve).once("error", (error) => {
      reject(new HostError("socket-failed", `cannot connect to ${path}: ${error.message}`, { cause: error }));
    });
  });
  const peer = new RpcPeer<OverlayNotices, OverlayMethods>({
    local: overlayNotices,
    remote: overlayMethods,
    handlers,
    send: (text) => void socket.write(`${text}\n`),
    onFault: () => undefined,
  });
  socket
    .on("error", () => undefined)
    .on("close", () => {
      peer.close(new SessionError("disconnected", "the overlay disconnected"));
      onEnd();
    });
  void receiveAll(socket, peer);
  return { peer, close: () => void socket.destroy() };
}

async function receiveAll(socket: Socket, peer: RpcPeer<OverlayNotices, OverlayMethods>): Promise<void> {
  try {
    for await (const line of linesOf(socket, OVERLAY_LIMITS.maxBytes)) {
      await peer.receive(parseMessage(line, OVERLAY_LIMITS));
    }
  } catch (error) {
    peer.close(toError(error));
    socket.destroy();
  }
}
