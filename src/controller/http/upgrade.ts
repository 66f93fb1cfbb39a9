import type { FrameSocket } from "../../host/net/frame-socket.ts";

/** A terminal that a node has opened. The requester joins or discards it. */
export interface NodeTerminal {
  join(client: FrameSocket): void;
  discard(): void;
}

/** Joins the socket of an upgrade request to a terminal; the HTTP response is then not sent. */
export type Upgrade = (terminal: NodeTerminal) => void;
