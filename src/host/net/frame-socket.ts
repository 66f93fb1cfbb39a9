import type { Duplex } from "node:stream";
import { toError } from "../../errors.ts";

/** What a frame socket tells its owner. After `onEnd` nothing follows. */
export interface FrameListener {
  onData(bytes: Buffer): void;
  onText(text: string): void;
  /** Any sign of life, a ping's answer included. */
  onHeard?(): void;
  onEnd(end: FrameEnd): void;
}

/** How it ended: the close code (RFC 6455 §7.4) of the other side, or undefined when it was cut. */
export interface FrameEnd {
  readonly code: number | undefined;
  readonly reason: string;
}

/** A connection that carries bytes and texts in frames, in order and with back-pressure. Nothing is read until it is listened to. */
export interface FrameSocket {
  listen(listener: FrameListener): void;
  /** Sends one frame; `onSent` is called once the kernel has it, or it was lost. */
  send(frame: Uint8Array | string, onSent?: () => void): void;
  /** Bytes accepted for sending that the kernel has not taken yet. */
  buffered(): number;
  /** Stops and goes on reading. What was read already may still be told. */
  pause(): void;
  resume(): void;
  /** Asks the other side for a sign of life; it may be that there is nothing to ask with. */
  ping(): void;
  /** Says goodbye after what was sent; the caller cuts it when that takes too long. */
  close(code: number, reason: string): void;
  /** Cuts at once. */
  terminate(): void;
}

/** What is used of a WebSocket of the library, which itself may be imported in two folders only. */
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

/** Frames of an open WebSocket; it is paused until somebody listens. */
export function webSocketFrames(socket: WebSocketLike): FrameSocket {
  socket.pause();
  let failure: string | undefined;
  // Without a listener an error would end the process; `close` follows each.
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
      // A paused socket would never see the other side's answer.
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

/** Frames over a plain stream of bytes: one byte of kind, four of length (big endian), then so many bytes. `head` was read already. */
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
      if (length > maxBytes || kind > CLOSE) return fail("a frame that is not spoken here");
      if (waiting.length < HEADER_BYTES + length) return;
      const bytes = waiting.subarray(HEADER_BYTES, HEADER_BYTES + length);
      waiting = waiting.subarray(HEADER_BYTES + length);
      if (kind === DATA) listener?.onData(bytes);
      else if (kind === TEXT) listener?.onText(bytes.toString("utf8"));
      else if (length < 2) return fail("a close without a code");
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
      // A connection of HTTP stays open one way when the other side has closed its own.
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
