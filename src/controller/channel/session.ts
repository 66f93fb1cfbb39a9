import type { Duplex } from "node:stream";
import type { RawData, WebSocket } from "ws";
import { AgentError, errnoOf, InputError, SessionError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { meterSocket } from "../../host/net/metered-socket.ts";
import { parseMessage, refuseEnvelope, SESSION_BUDGET, SESSION_LIMITS } from "../../protocol/channel/envelope.ts";
import {
  closeCodes,
  controlMethods,
  nodeMethods,
  type CloseReason,
  type ControlMethods,
  type NodeMethods,
} from "../../protocol/channel/methods.ts";
import { RpcPeer, type Handlers, type RpcOptions } from "../../protocol/channel/rpc.ts";
import type { StoredHeartbeat } from "../store/nodes.ts";
import type { RefusalKind } from "./refusals.ts";

/** Above this many unsent bytes nothing that can wait is sent; far above it the other side is not reading and is dropped. */
export const CONGESTED_BYTES = 256 * 1024;
const STUCK_BYTES = 4 * 1024 * 1024;
const MAX_BAD_FRAMES = 100;
/** What the library calls a message over its limit, before it closes with 1009. */
const TOO_LARGE = "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH";
const PARSE_ERROR = -32700;
const INVALID_REQUEST = -32600;

/** How long a closing handshake may take before the socket is cut. */
const CLOSE_GRACE_MS = 2000;

/** Whose session it is, and where from. */
export interface SessionFacts {
  readonly uid: string;
  readonly sid: string;
  /** The nonce the node chose: what a notice of its deletion answers. */
  readonly cnonce: string;
  readonly address: string;
  /** What the control plane's proof said the time is, and the monotonic ms of that moment: session time begins here. */
  readonly begins: { readonly iat: number; readonly sinceBoot: number };
}

/** What all sessions share; one value for all of them, since there may be thousands. */
export interface SessionHooks {
  readonly clock: Clock;
  readonly handlers: (session: NodeSession) => Handlers<NodeMethods>;
  readonly onClose: (session: NodeSession) => void;
  readonly onRefused: (session: NodeSession, kind: RefusalKind, message: string) => void;
  readonly onFault: (session: NodeSession, method: string, error: Error) => void;
}

/** One authenticated WebSocket of one node. It is itself what its peer is made of, to be spared a set of closures. */
export class NodeSession implements RpcOptions<NodeMethods, ControlMethods> {
  readonly uid: string;
  readonly sid: string;
  readonly cnonce: string;
  readonly address: string;
  readonly peer: RpcPeer<NodeMethods, ControlMethods>;
  /** Monotonic ms of the last bytes received. */
  lastHeardAt: number;
  /** Newest heartbeat not yet in the store. */
  heartbeat: StoredHeartbeat | undefined;
  /** Documents whose version was raised above the node's in this session; made only where that happens. */
  followed: Set<string> | undefined;
  readonly #socket: WebSocket;
  readonly #hooks: SessionHooks;
  /** Session time less the time since boot, in ms; one number, since there may be thousands. */
  readonly #aheadMs: number;
  /** Charges a received message for more than its size. */
  readonly #charge: (messages: number) => void;
  #badFrames = 0;

  constructor(
    { uid, sid, cnonce, address, begins }: SessionFacts,
    socket: WebSocket,
    stream: Duplex,
    hooks: SessionHooks,
  ) {
    this.uid = uid;
    this.sid = sid;
    this.cnonce = cnonce;
    this.address = address;
    this.lastHeardAt = hooks.clock.elapsed();
    this.#socket = socket;
    this.#hooks = hooks;
    this.#aheadMs = begins.iat * 1000 - begins.sinceBoot;
    this.peer = new RpcPeer<NodeMethods, ControlMethods>(this);
    // Not whole messages: a large one may take its time on a slow link.
    stream.on("data", () => {
      this.lastHeardAt = hooks.clock.elapsed();
    });
    socket.on("message", (data, isBinary) => this.#receive(data, isBinary));
    socket.on("ping", (data) => this.#pong(data));
    this.#charge = meterSocket(socket, {
      stream,
      limits: SESSION_BUDGET,
      clock: hooks.clock,
      onExceeded: () => {
        hooks.onRefused(this, "too-many-messages", "more messages or bytes than a session may send");
        closeSocket(socket, 1008, "more messages or bytes than a session may send", hooks.clock);
      },
    });
    socket.on("error", (error) => {
      if (errnoOf(error) === TOO_LARGE) hooks.onRefused(this, "too-large", "a message over 1 MiB");
    });
    socket.on("close", () => {
      this.peer.close(new SessionError("session-closed", `the session of ${this.uid} ended`));
      hooks.onClose(this);
    });
  }

  get local(): NodeMethods {
    return nodeMethods;
  }

  get remote(): ControlMethods {
    return controlMethods;
  }

  handlers(): Handlers<NodeMethods> {
    return this.#hooks.handlers(this);
  }

  onFault(method: string, error: Error): void {
    this.#hooks.onFault(this, method, error);
  }

  /** Sends one message; a socket whose other side does not read is cut. */
  send(text: string): void {
    if (this.#socket.bufferedAmount > STUCK_BYTES) this.#socket.terminate();
    else this.#socket.send(text);
  }

  /** Charges a message as if it were so many, for the work that it causes. */
  spend(messages: number): void {
    this.#charge(messages);
  }

  /** Session time in whole Unix seconds: what the node judges signatures by, so that a step of the wall clock changes nothing. */
  now(): number {
    return Math.floor((this.#aheadMs + this.#hooks.clock.sinceBoot()) / 1000);
  }

  /** Too much is unsent for anything that can wait. */
  get isCongested(): boolean {
    return this.#socket.bufferedAmount > CONGESTED_BYTES;
  }

  /** Sends the first answer, which belongs to the handshake and not to the peer. */
  answer(id: number, result: object): void {
    this.send(JSON.stringify({ jsonrpc: "2.0", id, result }));
  }

  /** Ends the session with a close code of the channel; calls in flight fail at once. */
  end(reason: CloseReason, text: string = reason): void {
    this.peer.close(new SessionError("session-closed", `the session of ${this.uid} ended: ${text}`));
    closeSocket(this.#socket, closeCodes[reason], text, this.#hooks.clock);
  }

  /** Closes for good manners' sake, as when the controller stops. */
  leave(): void {
    closeSocket(this.#socket, 1001, "controller stops", this.#hooks.clock);
  }

  /** Cuts a socket whose other side is gone. */
  cut(): void {
    this.#socket.terminate();
  }

  /** Closes a socket whose other side does not read the answers to its pings. */
  #pong(data: Buffer): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    if (this.#socket.bufferedAmount > STUCK_BYTES) this.#socket.terminate();
    else this.#socket.pong(data);
  }

  #receive(data: RawData, isBinary: boolean): void {
    // What arrives after we said goodbye belongs to nobody.
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    if (isBinary) {
      closeSocket(this.#socket, 1003, "text frames only", this.#hooks.clock);
      return;
    }
    let message: ReturnType<typeof parseMessage>;
    try {
      message = parseMessage(bytesOf(data), SESSION_LIMITS);
    } catch (error) {
      this.#refuse(toError(error));
      return;
    }
    void this.peer.receive(message);
  }

  #refuse(error: Error): void {
    this.#badFrames += 1;
    if (this.#badFrames > MAX_BAD_FRAMES) {
      this.#hooks.onRefused(this, "malformed", `more than ${MAX_BAD_FRAMES} malformed messages`);
      closeSocket(this.#socket, 1008, "too many malformed messages", this.#hooks.clock);
      return;
    }
    const code = error instanceof AgentError ? error.code : "internal";
    const number = code === "invalid-message" ? INVALID_REQUEST : PARSE_ERROR;
    const failure = { code: number, message: error.message.slice(0, 1024), data: { code } };
    this.send(refuseEnvelope(error) ?? JSON.stringify({ jsonrpc: "2.0", id: null, error: failure }));
  }
}

/** The bytes of a frame, whichever way the library hands them over. */
export function bytesOf(data: RawData): Uint8Array {
  if (Array.isArray(data)) return Buffer.concat(data);
  return data instanceof ArrayBuffer ? new Uint8Array(data) : data;
}

/** Closes with a code, and cuts the socket when the other side does not finish the handshake. */
export function closeSocket(socket: WebSocket, code: number, reason: string, clock: Clock): void {
  if (socket.readyState === socket.CLOSED) return;
  socket.close(code, Buffer.from(reason).subarray(0, 123));
  const cancel = clock.after(CLOSE_GRACE_MS, () => socket.terminate());
  socket.once("close", cancel);
}

/** The error that a request to an absent node answers. */
export function offline(uid: string): InputError {
  return new InputError("offline", `node ${uid} has no session`);
}
