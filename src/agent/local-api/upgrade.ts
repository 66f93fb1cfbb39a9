import { STATUS_CODES, type IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { Logger } from "pino";
import { AgentError, HostError, InputError, toError } from "../../errors.ts";
import { framedStream } from "../../host/net/frame-socket.ts";
import { ContainerExecQuery } from "../../protocol/local/api.ts";
import { LOCAL_STREAM_UPGRADE, STREAM_LIMITS } from "../../protocol/channel/streams.ts";
import type { LocalProvider, LocalStream } from "./provider.ts";
import { failureOf, statusOf } from "./replies.ts";
import { EXEC_PATH, parse } from "./routes.ts";

/** Answers a request that becomes a terminal: with frames both ways (`framedStream`), or with an error like any other. Never rejects. */
export async function upgradeStream(
  { provider, log }: { readonly provider: LocalProvider; readonly log: Logger },
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  stopped: AbortSignal,
): Promise<void> {
  const left = new AbortController();
  socket.on("error", () => undefined);
  socket.once("close", () => left.abort(new HostError("cancelled", "the caller left")));
  const signal = AbortSignal.any([left.signal, stopped]);
  let stream: LocalStream | undefined;
  try {
    stream = await open(provider, request, signal);
    signal.throwIfAborted();
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${LOCAL_STREAM_UPGRADE}\r\n\r\n`);
    await stream.join(framedStream(socket, STREAM_LIMITS.takenFrameBytes, head), signal);
  } catch (thrown) {
    await stream?.discard();
    const error = toError(thrown);
    if (!(error instanceof AgentError)) log.error({ err: error, url: request.url }, "local request failed");
    refuse(socket, error);
  }
}

async function open(
  provider: LocalProvider,
  { method, url, headers }: IncomingMessage,
  signal: AbortSignal,
): Promise<LocalStream> {
  const at = URL.parse(`http://local${url ?? "/"}`);
  if (at?.pathname !== EXEC_PATH) throw new InputError("not-found", "the local API upgrades no such path");
  if (method !== "GET" || headers.upgrade !== LOCAL_STREAM_UPGRADE) {
    throw new InputError("not-supported", `a terminal needs an upgrade to ${LOCAL_STREAM_UPGRADE}`);
  }
  const query = { ...Object.fromEntries(at.searchParams), arg: at.searchParams.getAll("arg") };
  return provider.containerExec(parse(ContainerExecQuery, query), signal);
}

function refuse(socket: Duplex, error: Error): void {
  const status = statusOf(error);
  const body = `${JSON.stringify({ error: failureOf(error) })}\n`;
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\nContent-Type: application/json\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
    () => socket.destroy(),
  );
}
