import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { request as httpRequest, type IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { basename, dirname, isAbsolute, join, normalize } from "node:path";
import type { SecureContext } from "node:tls";
import { AgentError, errnoOf, HostError, InputError, SessionError, toError } from "../../errors.ts";
import { shownUrl } from "../../protocol/triggers/data-store.ts";
import { everyAuthorityContext } from "../net/authorities.ts";
import type { Clock } from "../clock.ts";
import { dialRequestFor, type Dialler } from "../net/dial.ts";
import { parseRetryAfter } from "../net/http-client.ts";
import { REDIRECTS, redirectTarget } from "../net/redirect-target.ts";

/** The first byte to read, and for a resumed read a validator that detects a changed file. */
export interface ReadFrom {
  readonly start: number;
  readonly validator?: string;
}

/** An opened file whose bytes start at `start`, which is 0 if the source sends the whole file. */
export interface OpenedFile {
  readonly start: number;
  /** Size of the whole file in bytes; undefined if the source does not report it. */
  readonly total: number | undefined;
  /** Validator for a later attempt to resume (RFC 9110 §13.1.5). */
  readonly validator: string | undefined;
  readonly body: AsyncIterable<Uint8Array>;
  close(): void;
}

/** Reads release files from an absolute path, or an http or https URL. */
export interface ReleaseSource {
  /**
   * @throws {InputError} `bad-address`, `bad-redirect`, `bad-encoding`, `refused`; {HostError} `file-failed`; {SessionError}
   *   codes of the dialler, `bad-answer`, `bad-range`, `busy`, `cut-off` or `stalled`.
   */
  open(address: string, from: ReadFrom, signal: AbortSignal): Promise<OpenedFile>;
}

export interface ReleaseSourceOptions {
  readonly dialler: Dialler;
  readonly clock: Clock;
  /** Key pins of the control plane, trusted for its own origin regardless of its certificate. */
  readonly controlPlane: { readonly origin: string; readonly pins: readonly string[] } | undefined;
  readonly connectMs?: number;
  /** Time limit of a response's head, in milliseconds. */
  readonly headMs?: number;
}

const MAX_REDIRECTS = 5;
const PIECE_BYTES = 256 * 1024;

/** Returns the address of a file in the same directory. @throws {InputError} `bad-address` */
export function besideOf(address: string, name: string): string {
  if (name !== basename(name) || name.startsWith("."))
    throw new InputError("bad-address", `${name} is not a plain file name`);
  return isAbsolute(address) ? join(dirname(address), name) : new URL(name, urlOf(address)).href;
}

/** Reads files over HTTP and of this machine. */
export function hostReleaseSource(options: ReleaseSourceOptions): ReleaseSource {
  const { clock, controlPlane, connectMs = 20_000, headMs = 30_000 } = options;
  let authorities: SecureContext | undefined;

  return {
    open: (address, from, signal) =>
      isAbsolute(address) ? openLocal(normalize(address), from) : openRemote(urlOf(address), from, signal),
  };

  async function openRemote(first: URL, from: ReadFrom, signal: AbortSignal): Promise<OpenedFile> {
    let url = first;
    for (let redirects = 0; ; redirects += 1) {
      const response = await ask(url, from, signal);
      if (!REDIRECTS.has(response.statusCode ?? 0)) return opened(response, url, from, clock.now());
      response.destroy();
      if (redirects >= MAX_REDIRECTS) {
        throw new InputError("bad-redirect", `more than ${MAX_REDIRECTS} redirects from ${shownUrl(first.href)}`);
      }
      url = redirectTarget(url, response.headers.location);
    }
  }

  async function ask(url: URL, { start, validator }: ReadFrom, signal: AbortSignal): Promise<IncomingMessage> {
    const socket = await connect(url, signal);
    const range = start > 0 && validator !== undefined ? { range: `bytes=${start}-`, "if-range": validator } : {};
    const late = new AbortController();
    const stop = clock.after(headMs, () =>
      late.abort(new SessionError("stalled", `${shownUrl(url.href)} did not respond within ${headMs / 1000} s`)),
    );
    const limit = AbortSignal.any([signal, late.signal]);
    try {
      return await headOf(url, socket, range, limit);
    } catch (error) {
      socket.destroy();
      if (limit.aborted) throw toError(limit.reason);
      if (error instanceof SessionError) throw error;
      const message = `${shownUrl(url.href)}: ${toError(error).message}`;
      // A response that is not HTTP fails the same way on a retry.
      const isSpoken = errnoOf(error)?.startsWith("HPE_") === true;
      throw new SessionError(isSpoken ? "bad-answer" : "cut-off", message, { cause: error });
    } finally {
      stop();
    }
  }

  async function connect(url: URL, signal: AbortSignal): Promise<Socket> {
    const pins = url.origin === controlPlane?.origin ? controlPlane.pins : [];
    const request = dialRequestFor(url, pins, connectMs);
    const dial = async (): Promise<Socket> => {
      const tls = request.tls === undefined || authorities === undefined ? {} : { tls: { pins, authorities } };
      return (await options.dialler.dial({ ...request, ...tls }, signal)).socket;
    };
    try {
      return await dial();
    } catch (error) {
      const isUntrusted = error instanceof SessionError && error.code === "tls-untrusted";
      if (!isUntrusted || authorities !== undefined) throw error;
      authorities = everyAuthorityContext();
      return dial();
    }
  }
}

/** Time limit of reading a whole file, in milliseconds. */
const WHOLE_MS = 60_000;

/** Reads a whole small file. @throws {InputError} `too-large`, and errors of opening it */
export async function readWhole(
  { source, clock }: { readonly source: ReleaseSource; readonly clock: Clock },
  address: string,
  maxBytes: number,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const late = new AbortController();
  const stop = clock.after(WHOLE_MS, () =>
    late.abort(new SessionError("stalled", `reading ${address} timed out after ${WHOLE_MS / 1000} s`)),
  );
  const limit = AbortSignal.any([signal, late.signal]);
  let opened: OpenedFile | undefined;
  const close = (): void => opened?.close();
  limit.addEventListener("abort", close, { once: true });
  const pieces: Uint8Array[] = [];
  let size = 0;
  try {
    opened = await source.open(address, { start: 0 }, limit);
    for await (const piece of opened.body) {
      size += piece.length;
      if (size > maxBytes) throw new InputError("too-large", `${address} is larger than ${maxBytes} bytes`);
      pieces.push(piece);
    }
    limit.throwIfAborted();
    return Buffer.concat(pieces);
  } catch (error) {
    if (limit.aborted) throw toError(limit.reason);
    if (error instanceof AgentError) throw error;
    throw new SessionError("cut-off", `${address}: ${toError(error).message}`, { cause: error });
  } finally {
    stop();
    limit.removeEventListener("abort", close);
    opened?.close();
  }
}

function urlOf(address: string): URL {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw new InputError("bad-address", `${address} is neither an absolute path nor an http or https address`);
  }
  if (url.username !== "" || url.password !== "") {
    throw new InputError("bad-address", "the address of a release must not contain a user or a password");
  }
  url.hash = "";
  return url;
}

function headOf(
  url: URL,
  socket: Socket,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const fail = (): void => void asking.destroy(toError(signal.reason));
    const asking = httpRequest(url, {
      protocol: "http:",
      headers: {
        host: url.host,
        connection: "close",
        accept: "*/*",
        "accept-encoding": "identity",
        "user-agent": "holdfast",
        ...headers,
      },
      createConnection: () => socket,
    });
    signal.addEventListener("abort", fail, { once: true });
    const settle = (): void => signal.removeEventListener("abort", fail);
    asking
      .on("error", (error) => (settle(), reject(error)))
      .once("upgrade", (_response, upgraded) => {
        upgraded.destroy();
        reject(new SessionError("bad-answer", `${shownUrl(url.href)} switches protocols`));
      })
      // The connection may close without a response or an error.
      .once("close", () => reject(new Error("the connection closed without a response")))
      .once("response", (response) => {
        settle();
        // The reader gets the error; between reads no handler is registered.
        response.on("error", () => undefined);
        resolve(response);
      })
      .end();
  });
}

function opened(response: IncomingMessage, url: URL, from: ReadFrom, now: number): OpenedFile {
  const { statusCode: status = 0, headers } = response;
  const refuse = (error: Error): never => {
    response.destroy();
    throw error;
  };
  const shown = shownUrl(url.href);
  const isRanged = from.start > 0 && from.validator !== undefined;
  if (isRanged && status === 416)
    refuse(new SessionError("bad-range", `${shown} has no bytes from offset ${from.start}`));
  if (status !== 200 && !(isRanged && status === 206)) refuse(statusError(status, headers["retry-after"], shown, now));
  if (!/^\s*(?:identity)?\s*$/i.test(headers["content-encoding"] ?? "")) {
    refuse(new InputError("bad-encoding", `${shown} is compressed, which was not requested`));
  }
  const length = lengthOf(response);
  const { etag, "last-modified": lastModified } = headers;
  const validator = etag !== undefined && !etag.startsWith("W/") ? etag : etag === undefined ? lastModified : undefined;
  const common = { body: response as AsyncIterable<Uint8Array>, close: () => void response.destroy() };
  if (status === 200) return { ...common, start: 0, total: length, validator };
  const [, first, last, total] =
    /^bytes (\d{1,15})-(\d{1,15})\/(\d{1,15})$/i.exec(headers["content-range"] ?? "") ?? [];
  const isFit = Number(first) === from.start && Number(last) + 1 === Number(total);
  if (!isFit || (length !== undefined && length !== Number(total) - from.start)) {
    refuse(new SessionError("bad-range", `${shown} returned a range other than bytes from ${from.start}`));
  }
  return { ...common, start: from.start, total: Number(total), validator: from.validator };
}

function lengthOf({ headers }: IncomingMessage): number | undefined {
  const text = headers["content-length"];
  return text === undefined || !/^\d{1,15}$/.test(text) ? undefined : Number(text);
}

/** Returns `busy` for a status that may be temporary. */
function statusError(status: number, retryAfter: string | undefined, shown: string, now: number): Error {
  const message = `${shown} responded with status ${status}`;
  if (status !== 408 && status !== 429 && status < 500) return new InputError("refused", message);
  const retryAfterMs = parseRetryAfter(retryAfter, now);
  return new SessionError("busy", message, retryAfterMs === undefined ? {} : { details: { retryAfterMs } });
}

async function openLocal(path: string, { start }: ReadFrom): Promise<OpenedFile> {
  try {
    // Without O_NONBLOCK, opening a pipe would block.
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const stat = await file.stat();
    if (!stat.isFile()) {
      await file.close();
      throw new Error("not a regular file");
    }
    const from = Math.min(start, stat.size);
    const stream = file.createReadStream({ start: from, highWaterMark: PIECE_BYTES });
    return { start: from, total: stat.size, validator: "local", body: stream, close: () => void stream.destroy() };
  } catch (error) {
    throw new HostError("file-failed", `cannot read ${path}: ${toError(error).message}`, { cause: error });
  }
}
