import { request as httpRequest, type ClientRequest, type IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { HostError, toError } from "../../../errors.ts";

/** A speed-test server. `connect` opens a connection, with TLS established for https. */
export interface TransferTarget {
  readonly url: URL;
  readonly connect: (signal: AbortSignal) => Promise<Socket>;
}

const PIECE_BYTES = 64 * 1024;

/**
 * Sends one request on its own connection: a GET of `bytes` bytes, or a POST of as many. Reports every piece. An abort ends it without an
 * error.
 * @throws {HostError} `exec-failed` if the server is unreachable or refuses.
 */
export async function transferOnce(
  direction: "download" | "upload",
  target: TransferTarget,
  bytes: number,
  signal: AbortSignal,
  onMoved: (bytes: number) => void,
): Promise<void> {
  let socket: Socket | undefined;
  try {
    socket = await target.connect(signal);
    const request = open(direction, target.url, socket, bytes, signal);
    const answered = answerOf(request);
    answered.catch(() => undefined);
    if (direction === "upload") await send(request, bytes, onMoved);
    request.end();
    const response = await answered;
    const status = response.statusCode ?? 0;
    if (status < 200 || status > 299) {
      response.destroy();
      throw new Error(`it answered with status ${status}`);
    }
    let received = 0;
    for await (const piece of response) {
      if (!(piece instanceof Uint8Array)) continue;
      received += piece.length;
      // Stops a server that sends more than requested.
      if (direction === "download") onMoved(piece.length);
      if (received >= bytes) break;
    }
    if (direction === "download" && received < bytes) throw new Error(`it sent ${received} of ${bytes} bytes`);
  } catch (error) {
    if (signal.aborted) return;
    throw new HostError("exec-failed", `speed-test server ${target.url.host}: ${toError(error).message}`, {
      cause: error,
      details: { server: target.url.host },
    });
  } finally {
    socket?.destroy();
  }
}

function open(
  direction: "download" | "upload",
  target: URL,
  socket: Socket,
  bytes: number,
  signal: AbortSignal,
): ClientRequest {
  const url = new URL(target);
  if (direction === "download") url.searchParams.set("bytes", String(bytes));
  return httpRequest(url, {
    method: direction === "download" ? "GET" : "POST",
    // TLS is part of the socket, so the request uses a plain protocol.
    protocol: "http:",
    createConnection: () => socket,
    signal,
    headers: {
      host: url.host,
      connection: "close",
      ...(direction === "download"
        ? { accept: "application/octet-stream" }
        : { "content-type": "application/octet-stream", "content-length": bytes }),
    },
  });
}

function answerOf(request: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.once("response", resolve);
    request.on("error", reject);
  });
}

/** Writes the body at the socket's speed; stops when the server replies or fails earlier. */
async function send(request: ClientRequest, bytes: number, onMoved: (bytes: number) => void): Promise<void> {
  const whole = Buffer.alloc(PIECE_BYTES, 0x5a);
  const state = { isOver: false };
  let wake: (() => void) | undefined;
  const notify = (): void => wake?.();
  const over = (): void => {
    state.isOver = true;
    notify();
  };
  request.on("drain", notify);
  request.once("response", over);
  request.once("close", over);
  for (let left = bytes; left > 0 && !state.isOver;) {
    const piece = left >= PIECE_BYTES ? whole : whole.subarray(0, left);
    left -= piece.length;
    const hasRoom = request.write(piece);
    if (!hasRoom) {
      await new Promise<void>((resolve) => {
        wake = resolve;
        if (state.isOver) resolve();
      });
    }
    onMoved(piece.length);
  }
}
