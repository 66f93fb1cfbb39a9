import type { Duplex } from "node:stream";
import type { RawData, WebSocket } from "ws";
import { AgentError, errnoOf, InputError, SessionError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { meterSocket } from "../../host/net/metered-socket.ts";
import { countValues } from "../../lib/formats/strict-json.ts";
import {
  parseMessage,
  refuseEnvelope,
  SESSION_BUDGET,
  SESSION_LIMITS,
  VALUES_PER_MESSAGE,
  type Message,
} from "../../protocol/channel/envelope.ts";
import {
  closeCodes,
  controlMethods,
  nodeMethods,
  type CloseReason,
  type ControlMethods,
  type NodeMethods,
} from "../../protocol/channel/methods.ts";
import { RpcPeer, type Handlers, type RpcOptions } from "../../protocol/channel/rpc.ts";
import type { StoredHeartbeat } from "../nodes/store.ts";
import type { RefusalKind } from "./refusals.ts";

/**
 * Thresholds of unsent bytes: above the first, deferrable messages wait; above the second, the peer is not reading and the session is
 * closed.
 */
const CONGESTED_BYTES = 256 * 1024;
const STUCK_BYTES = 4 * 1024 * 1024;
const MAX_BAD_FRAMES = 100;
/** Error code of the WebSocket library for a message over the limit, which it closes with 1009. */
const TOO_LARGE = "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH";
const PARSE_ERROR = -32700;
const INVALID_REQUEST = -32600;

/** Time limit of the closing handshake, in milliseconds. */
const CLOSE_GRACE_MS = 2000;

/** Identity and start of a session. */
export interface SessionFacts {
  readonly uid: string;
  readonly sid: string;
  /** Nonce of the node, repeated in a notice of its deletion. */
  readonly cnonce: string;
  readonly address: string;
  /** Start of session time: the time in the control plane's proof, in Unix seconds, and monotonic milliseconds of that moment. */
  readonly start: { readonly iat: number; readonly sinceBoot: number };
}

/** Dependencies shared by all sessions; one value, since there may be thousands of sessions. */
export interface SessionHooks {
  readonly clock: Clock;
  readonly handlers: (session: NodeSession) => Handlers<NodeMethods>;
  readonly onClose: (session: NodeSession) => void;
  readonly onRefused: (session: NodeSession, kind: RefusalKind, message: string) => void;
  readonly onFault: (session: NodeSession, method: string, error: Error) => void;
}

/** An authenticated WebSocket of a node. Implements its peer's options itself, which saves closures per session. */
export class NodeSession implements RpcOptions<NodeMethods, ControlMethods> {
  readonly uid: string;
  readonly sid: string;
  readonly cnonce: string;
  readonly address: string;
  readonly peer: RpcPeer<NodeMethods, ControlMethods>;
  /** Monotonic time of the last received bytes, in milliseconds. */
  lastHeardAt: number;
  /** Latest heartbeat that is not stored yet. */
  heartbeat: StoredHeartbeat | undefined;
  /** Documents whose version was raised above the node's in this session; created on first use. */
  followed: Set<string> | undefined;
  /** Whether its socket has closed. */
  isOver = false;
  readonly #socket: WebSocket;
  readonly #hooks: SessionHooks;
  /** Session time minus time since boot, in milliseconds. */
  readonly #aheadMs: number;
  /** Charges the budget for more messages than were received. */
  readonly #charge: (messages: number) => void;
  #badFrames = 0;

  constructor(
    { uid, sid, cnonce, address, start }: SessionFacts,
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
    this.#aheadMs = start.iat * 1000 - start.sinceBoot;
    this.peer = new RpcPeer<NodeMethods, ControlMethods>(this);
    // Counts bytes, not messages: a large message may be slow on a slow link.
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
        hooks.onRefused(this, "too-many-messages", "more messages or bytes than the session budget allows");
        closeSocket(socket, 1008, "more messages or bytes than the session budget allows", hooks.clock);
      },
    });
    socket.on("error", (error) => {
      if (errnoOf(error) === TOO_LARGE) hooks.onRefused(this, "too-large", "a message over 1 MiB");
    });
    socket.on("close", () => {
      this.isOver = true;
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

  /** Sends one message; closes a socket whose peer does not read. */
  send(text: string): void {
    if (this.#socket.bufferedAmount > STUCK_BYTES) this.#socket.terminate();
    else this.#socket.send(text);
  }

  /** Charges the budget for a number of messages, to reflect the work a message causes. */
  spend(messages: number): void {
    this.#charge(messages);
  }

  /** Returns session time in whole Unix seconds. The node validates signatures by it, so that a step of the wall clock has no effect. */
  now(): number {
    return Math.floor((this.#aheadMs + this.#hooks.clock.sinceBoot()) / 1000);
  }

  /** Reports whether deferrable messages must wait. */
  get isCongested(): boolean {
    return this.#socket.bufferedAmount > CONGESTED_BYTES;
  }

  /** Sends the first response, which belongs to the handshake. */
  answer(id: number, result: object): void {
    this.send(JSON.stringify({ jsonrpc: "2.0", id, result }));
  }

  /** Closes the session with a close code of the channel; pending calls fail at once. */
  end(reason: CloseReason, text: string = reason): void {
    this.peer.close(new SessionError("session-closed", `the session of ${this.uid} ended: ${text}`));
    closeSocket(this.#socket, closeCodes[reason], text, this.#hooks.clock);
  }

  /** Closes the socket because the controller shuts down. */
  leave(): void {
    closeSocket(this.#socket, 1001, "controller is shutting down", this.#hooks.clock);
  }

  /** Terminates a socket whose peer is unreachable. */
  cut(): void {
    this.#socket.terminate();
  }

  /** Answers a ping, or closes a socket whose peer does not read. */
  #pong(data: Buffer): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    if (this.#socket.bufferedAmount > STUCK_BYTES) this.#socket.terminate();
    else this.#socket.pong(data);
  }

  #receive(data: RawData, isBinary: boolean): void {
    // Messages after our close frame are ignored.
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
    this.spend(Math.floor(valuesIn(message) / VALUES_PER_MESSAGE));
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

function valuesIn(message: Message): number {
  if (message.kind === "failure") return countValues(message.error);
  return countValues(message.kind === "success" ? message.result : message.params);
}

/** Returns the bytes of a frame in any form of the library. */
export function bytesOf(data: RawData): Uint8Array {
  if (Array.isArray(data)) return Buffer.concat(data);
  return data instanceof ArrayBuffer ? new Uint8Array(data) : data;
}

/** Closes with a code, and terminates the socket if the peer does not complete the handshake. */
export function closeSocket(socket: WebSocket, code: number, reason: string, clock: Clock): void {
  if (socket.readyState === socket.CLOSED) return;
  socket.close(code, Buffer.from(reason).subarray(0, 123));
  const cancel = clock.after(CLOSE_GRACE_MS, () => socket.terminate());
  socket.once("close", cancel);
}

/** Error of a request to an offline node. */
export function offline(uid: string): InputError {
  return new InputError("offline", `node ${uid} has no session`);
}
