import type { Duplex } from "node:stream";
import { toError } from "../../errors.ts";

/** Receives the frames of a frame socket. Nothing follows after `onEnd`. */
export interface FrameListener {
  onData(bytes: Buffer): void;
  onText(text: string): void;
  /** Called on any traffic, including the answer to a ping. */
  onHeard?(): void;
  onEnd(end: FrameEnd): void;
}

/** End of a frame socket: the close code of the other side (RFC 6455 §7.4), or undefined if the connection broke. */
export interface FrameEnd {
  readonly code: number | undefined;
  readonly reason: string;
}

/** Sends and receives bytes and texts in frames, in order and with back-pressure. Reads nothing until it is listened to. */
export interface FrameSocket {
  listen(listener: FrameListener): void;
  /** Sends one frame; `onSent` is called when the kernel has accepted it, or when it was lost. */
  send(frame: Uint8Array | string, onSent?: () => void): void;
  /** Bytes to send that the kernel has not accepted yet. */
  buffered(): number;
  /** Pauses reading. Bytes already read may still be delivered. */
  pause(): void;
  resume(): void;
  /** Sends a ping, if the protocol has one. */
  ping(): void;
  /** Closes after the frames sent so far; the caller terminates if that takes too long. */
  close(code: number, reason: string): void;
  /** Closes immediately. */
  terminate(): void;
}

/** The used part of the library's WebSocket, which only two folders may import. */
export interface WebSocketLike {
  readonly bufferedAmount: number;
  readonly readyState: number;
  readonly OPEN: number;
  on(event: "message", listener: (data: Buffer | ArrayBuffer | Buffer[], isBinary: boolean) => void): unknown;
  on(event: "pong" | "ping", listener: () => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "close", listener: (code: number, reason: Buffer) => void): unknown;
  send(data: Uint8Array | string, options: { binary: boolean }, done: (error?: Error | null) => void): void;
  ping(): void;
  pause(): void;
  resume(): void;
  close(code: number, reason: string): void;
  terminate(): void;
}

const ABNORMAL = 1006; // RFC 6455 §7.4.1: never sent
const MAX_REASON_BYTES = 123; // RFC 6455 §5.5

/** Creates a frame socket on an open WebSocket; it is paused until it is listened to. */
export function webSocketFrames(socket: WebSocketLike): FrameSocket {
  socket.pause();
  let failure: string | undefined;
  // Without a listener an error would end the process; `close` follows each error.
  socket.on("error", (error) => {
    failure = error.message;
  });
  let closed: FrameEnd | undefined;
  let onClosed: (end: FrameEnd) => void = () => undefined;
  socket.on("close", (code, reason) => {
    const words = reason.length > 0 ? `: ${reason.toString("utf8")}` : "";
    const text = failure ?? `closed with ${code}${words}`;
    closed = { code: code === ABNORMAL ? undefined : code, reason: text };
    onClosed(closed);
  });
  return {
    listen(listener) {
      if (closed !== undefined) return listener.onEnd(closed);
      onClosed = (end) => listener.onEnd(end);
      socket.on("message", (data, isBinary) => {
        const bytes = Array.isArray(data) ? Buffer.concat(data) : Buffer.isBuffer(data) ? data : Buffer.from(data);
        listener.onHeard?.();
        if (isBinary) listener.onData(bytes);
        else listener.onText(bytes.toString("utf8"));
      });
      socket.on("pong", () => listener.onHeard?.());
      socket.on("ping", () => listener.onHeard?.());
      socket.resume();
    },
    send(frame, onSent = ignore) {
      if (socket.readyState !== socket.OPEN) return queueMicrotask(onSent);
      socket.send(frame, { binary: typeof frame !== "string" }, () => onSent());
    },
    buffered: () => socket.bufferedAmount,
    pause: () => socket.pause(),
    resume: () => socket.resume(),
    ping: () => {
      if (socket.readyState === socket.OPEN) socket.ping();
    },
    close: (code, reason) => {
      // A paused socket would not receive the close of the other side.
      socket.resume();
      socket.close(
        code,
        Buffer.from(reason)
          .subarray(0, MAX_REASON_BYTES)
          .toString("utf8")
          .replace(/\uFFFD$/, ""),
      );
    },
    terminate: () => socket.terminate(),
  };
}

function ignore(): void {}

const HEADER_BYTES = 5;
const DATA = 0;
const TEXT = 1;
const CLOSE = 2;

/**
 * Creates a frame socket on a byte stream: one byte of kind, four of length (big endian), then the bytes. `head` was
 * already read.
 */
export function framedStream(stream: Duplex, maxBytes: number, head: Buffer = Buffer.alloc(0)): FrameSocket {
  let waiting = head;
  let listener: FrameListener | undefined;
  let end: FrameEnd | undefined;
  let isPaused = false;
  const finish = (how: FrameEnd): void => {
    if (end !== undefined) return;
    end = how;
    listener?.onEnd(how);
  };
  const fail = (reason: string): void => {
    finish({ code: undefined, reason });
    stream.destroy();
  };
  const read = (): void => {
    for (;;) {
      if (isPaused || end !== undefined || waiting.length < HEADER_BYTES) return;
      const kind = waiting.readUInt8(0);
      const length = waiting.readUInt32BE(1);
      if (length > maxBytes || kind > CLOSE) return fail("received an invalid frame");
      if (waiting.length < HEADER_BYTES + length) return;
      const bytes = waiting.subarray(HEADER_BYTES, HEADER_BYTES + length);
      waiting = waiting.subarray(HEADER_BYTES + length);
      if (kind === DATA) listener?.onData(bytes);
      else if (kind === TEXT) listener?.onText(bytes.toString("utf8"));
      else if (length < 2) return fail("received a close frame without a code");
      else {
        finish({ code: bytes.readUInt16BE(0), reason: bytes.subarray(2).toString("utf8") });
        stream.end();
      }
    }
  };
  const write = (kind: number, bytes: Uint8Array, onSent: () => void): void => {
    if (end !== undefined || stream.writableEnded || stream.destroyed) return queueMicrotask(onSent);
    const header = Buffer.alloc(HEADER_BYTES);
    header.writeUInt8(kind, 0);
    header.writeUInt32BE(bytes.byteLength, 1);
    stream.write(header);
    stream.write(bytes, () => onSent());
  };
  stream.on("error", (error) => finish({ code: undefined, reason: toError(error).message }));
  stream.on("close", () => finish({ code: undefined, reason: "the connection was closed" }));
  return {
    listen(wanted) {
      listener = wanted;
      if (end !== undefined) return wanted.onEnd(end);
      stream.on("data", (chunk: Buffer) => {
        waiting = waiting.length === 0 ? chunk : Buffer.concat([waiting, chunk]);
        listener?.onHeard?.();
        read();
      });
      // An HTTP connection stays half-open after the other side has closed.
      stream.once("end", () => fail("the connection was closed"));
      read();
    },
    send: (frame, onSent = ignore) =>
      write(typeof frame === "string" ? TEXT : DATA, typeof frame === "string" ? Buffer.from(frame) : frame, onSent),
    buffered: () => stream.writableLength,
    pause: () => {
      isPaused = true;
      stream.pause();
    },
    resume: () => {
      if (!isPaused) return;
      isPaused = false;
      read();
      if (!isPaused) stream.resume();
    },
    ping: ignore,
    close: (code, reason) => {
      const bytes = Buffer.alloc(2 + Buffer.byteLength(reason));
      bytes.writeUInt16BE(code, 0);
      bytes.write(reason, 2);
      write(CLOSE, bytes, ignore);
      stream.end();
    },
    terminate: () => void stream.destroy(),
  };
}
