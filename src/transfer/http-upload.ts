import { randomBytes } from "node:crypto";
import { request as httpRequest, type ClientRequest, type IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { InputError, SessionError, toError } from "../errors.ts";
import { redirectTarget } from "../host/net/redirect-target.ts";
import type { StoreFile } from "../host/data-store/store.ts";
import { lengthOf, readAt } from "../host/files/open-bytes.ts";
import type { TransferEvent, TransferJob } from "../protocol/triggers/transfer.ts";
import { inAttempts } from "./attempts.ts";
import { requestLine, statusError, targetOf } from "./http-source.ts";
import { Meter } from "./meter.ts";
import type { TransferDeps } from "./deps.ts";

export type HttpUpload = Extract<TransferJob, { kind: "http-upload" }>;

const PIECE_BYTES = 512 * 1024;
/** Time limit of waiting for `100 Continue`; many servers never send it (RFC 9110 §10.1.1). */
const EXPECT_MS = 1000;

/**
 * Sends one file of the store with POST. After the first byte of the file nothing is retried and no redirect is followed, since a POST
 * may have succeeded although its response was lost. Before that, failures are retried and redirects by 307 or 308 followed.
 * @throws {InputError} `changed`, `refused`, `bad-redirect`, `forbidden-address`; {SessionError} as `httpDownload`
 */
export async function httpUpload(job: HttpUpload, deps: TransferDeps, signal: AbortSignal): Promise<TransferEvent> {
  const { clock, store, emit } = deps;
  const ending = new AbortController();
  const overall = AbortSignal.any([signal, ending.signal]);
  const file = store.open(job.parts.join("/"));
  const meter = new Meter({ clock, limits: job.limits, emit });
  meter.total = file.bytes;
  const stopLimit = meter.limit((error) => ending.abort(error));
  try {
    const body = bodyOf(file, job.multipart);
    await inAttempts(() => send(new URL(job.uri), { job, deps, body, meter }, overall), deps, overall);
    return { is: "done", bytes: file.bytes };
  } catch (error) {
    throw overall.aborted ? toError(overall.reason) : error;
  } finally {
    stopLimit();
    file.close();
  }
}

/** The request body: the file between the parts of the form. */
interface Body {
  readonly file: StoreFile;
  readonly contentType: string;
  readonly before: Buffer;
  readonly after: Buffer;
}

/** Builds a multipart form (RFC 7578); escapes the name as browsers do (WHATWG HTML). */
function bodyOf(file: StoreFile, isForm: boolean): Body {
  const none = Buffer.alloc(0);
  if (!isForm) return { file, contentType: "application/octet-stream", before: none, after: none };
  const boundary = `holdfast-${randomBytes(16).toString("hex")}`;
  const name = (file.parts.at(-1) ?? "").replaceAll('"', "%22").replaceAll("\r", "%0D").replaceAll("\n", "%0A");
  const head = `--${boundary}\r\ncontent-disposition: form-data; name="file"; filename="${name}"\r\n`;
  return {
    file,
    contentType: `multipart/form-data; boundary=${boundary}`,
    before: Buffer.from(`${head}content-type: application/octet-stream\r\n\r\n`),
    after: Buffer.from(`\r\n--${boundary}--\r\n`),
  };
}

interface Sending {
  readonly job: HttpUpload;
  readonly deps: TransferDeps;
  readonly body: Body;
  readonly meter: Meter;
}

async function send(from: URL, sending: Sending, signal: AbortSignal): Promise<void> {
  const { job, deps, body } = sending;
  let url = from;
  let expects = body.file.bytes > 0;
  for (let redirects = 0; ;) {
    const { connection: socket, proxy } = await deps.connector.connect(targetOf(url), signal);
    const line = requestLine(url, proxy, {
      accept: "*/*",
      "content-type": body.contentType,
      "content-length": String(body.before.length + body.file.bytes + body.after.length),
      ...(expects ? { expect: "100-continue" } : {}),
    });
    const { status, headers, wasSent } = await post(socket, line, { ...sending, expects }, signal);
    if (status >= 200 && status < 300) return;
    if (!wasSent && expects && status === 417) {
      expects = false;
    } else if (!wasSent && (status === 307 || status === 308)) {
      redirects += 1;
      if (redirects > job.limits.maxRedirects) {
        throw new InputError("bad-redirect", `there are more than ${job.limits.maxRedirects} redirects`);
      }
      url = redirectTarget(url, headers.location);
    } else {
      if (status >= 300 && status < 400) {
        throw new InputError("bad-redirect", `the server answered ${status}, which is not followed with a file`);
      }
      throw asFinal(statusError({ status, headers, url }, deps.clock.now()), wasSent);
    }
  }
}

interface Outcome {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly wasSent: boolean;
}

/** Sends one request over a connection and closes it. */
function post(
  socket: Socket,
  line: ReturnType<typeof requestLine>,
  { job, body, meter, expects }: Sending & { readonly expects: boolean },
  signal: AbortSignal,
): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    let wasSent = !expects;
    let isOver = false;
    const request = httpRequest({
      method: "POST",
      path: line.path,
      headers: line.headers,
      setHost: false,
      createConnection: () => socket,
    });
    const stopWatch = meter.watch((error) => finish(error));
    const waiting = setTimeout(begin, expects ? Math.min(EXPECT_MS, job.limits.stallMs / 2) : 0);
    const abort = (): void => finish(toError(signal.reason));
    const finish = (error?: Error, outcome?: Outcome): void => {
      if (isOver) return;
      isOver = true;
      clearTimeout(waiting);
      stopWatch();
      signal.removeEventListener("abort", abort);
      request.destroy();
      socket.destroy();
      if (outcome === undefined) reject(asFinal(error ?? new SessionError("cut-off", "no answer came"), wasSent));
      else resolve(outcome);
    };
    let isBegun = false;
    let isWhole = false;
    let early: Outcome | undefined;
    function begin(): void {
      if (isBegun || isOver) return;
      isBegun = true;
      clearTimeout(waiting);
      wasSent = true;
      sendBody(request, body, meter, () => isOver).then(
        () => {
          isWhole = true;
          if (early !== undefined) finish(undefined, early);
        },
        (error: unknown) => finish(toError(error)),
      );
    }
    if (signal.aborted) return abort();
    signal.addEventListener("abort", abort, { once: true });
    request
      .on("continue", begin)
      .once("response", ({ statusCode: status = 0, headers }) => {
        const outcome = { status, headers, wasSent };
        // A server may respond before it has read the whole body.
        if (status >= 200 && status < 300 && isBegun && !isWhole) early = outcome;
        else finish(undefined, outcome);
      })
      .on("upgrade", () => finish(new SessionError("bad-answer", "the answer switches protocols")))
      .on("error", (error) => finish(new SessionError("cut-off", error.message, { cause: error })))
      .once("close", () => finish());
    if (expects) request.flushHeaders();
  });
}

async function sendBody(request: ClientRequest, body: Body, meter: Meter, isOver: () => boolean): Promise<void> {
  const { file, before, after } = body;
  const pieceBytes = meter.pieceBytes(PIECE_BYTES);
  const buffer = Buffer.allocUnsafeSlow(Math.max(1, Math.min(pieceBytes, file.bytes)));
  if (before.length > 0) await written(request, before);
  for (let at = 0; at < file.bytes && !isOver();) {
    const wanted = Math.min(buffer.length, file.bytes - at);
    const count = readAt(file.fd, buffer.subarray(0, wanted), 0, at);
    // The last piece is sent only if the file is unchanged.
    if (count === 0 || (at + count === file.bytes && lengthOf(file.fd) !== file.bytes)) {
      throw new InputError("changed", "the file changed in length while it was sent");
    }
    await written(request, count === buffer.length ? buffer : buffer.subarray(0, count));
    at += count;
    meter.add(count);
    const waitMs = meter.waitMs();
    if (waitMs >= 1) await new Promise((resolve) => setTimeout(resolve, waitMs));
  }
  if (isOver()) return;
  if (after.length > 0) await written(request, after);
  request.end();
}

/** Resolves once the kernel has taken the bytes and the buffer can be reused. */
function written(request: ClientRequest, bytes: Buffer): Promise<void> {
  return new Promise((resolve, reject) =>
    request.write(bytes, (error) =>
      error === undefined || error === null
        ? resolve()
        : reject(new SessionError("cut-off", error.message, { cause: error })),
    ),
  );
}

/** Marks an error after the first byte of the file as final. */
function asFinal(error: Error, wasSent: boolean): Error {
  if (!wasSent || !(error instanceof SessionError)) return error;
  return new SessionError(error.code, error.message, { cause: error, details: { ...error.details, isFinal: true } });
}
