import { request as httpRequest, type IncomingMessage } from "node:http";
import type { z } from "zod";
import { errnoOf, HostError, InputError, SessionError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { framedStream, type FrameSocket } from "../../host/net/frame-socket.ts";
import { holdfastCommand, type GivenDirectories } from "../../lib/text/command-line.ts";
import { linesOf } from "../../lib/text/lines.ts";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import { describeIssues } from "../../protocol/channel/envelope.ts";
import { ADMIN_SOCKET, LOCAL_REPLY_LIMITS, READ_SOCKET, socketPath, STREAM_BEAT_MS } from "../../protocol/local/api.ts";
import { LocalError } from "../../protocol/local/answers.ts";
import { LOCAL_STREAM_UPGRADE, STREAM_LIMITS } from "../../protocol/channel/streams.ts";
import type { Call } from "./verb.ts";

/** A request to the agent, with the socket it goes to. */
export interface AgentRequest {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly socket: "agent.sock" | "admin.sock";
  readonly body?: unknown;
}

type Context = Pick<Call, "settings" | "clock" | "signal">;

/**
 * Asks the agent and reads its one answer.
 * @throws {SessionError} `agent-unreachable`, `timeout`, `invalid-reply`, or the code the agent answered with.
 */
export async function ask<T>(call: Context, request: AgentRequest, schema: z.ZodType<T>): Promise<T> {
  const exchange = await begin(call, request, 0);
  try {
    return read(request, schema, await wholeBody(exchange.message));
  } catch (error) {
    throw exchange.explain(error);
  } finally {
    exchange.end();
  }
}

/**
 * Reads a report of the agent, which needs no root.
 * @throws {SessionError} as `ask`.
 */
export function fetchReport<T>(call: Context, path: string, schema: z.ZodType<T>): Promise<T> {
  return ask(call, { method: "GET", path, socket: READ_SOCKET }, schema);
}

/**
 * Asks the agent and yields the lines of its answer as they come; leaving the loop hangs up.
 * @throws {SessionError} as `ask`; `agent-unreachable` when the agent goes away in the middle.
 */
export async function* follow<T>(call: Context, request: AgentRequest, schema: z.ZodType<T>): AsyncGenerator<T, void> {
  const exchange = await begin(call, request, STREAM_BEAT_MS);
  try {
    for await (const line of linesOf(exchange.message, LOCAL_REPLY_LIMITS.maxBytes)) yield read(request, schema, line);
  } catch (error) {
    throw exchange.explain(error);
  } finally {
    exchange.end();
  }
}

/**
 * Asks the agent for a stream both ways; nothing of it is read until it is listened to.
 * @throws {SessionError} as `ask`.
 */
export async function openStream({ settings, clock, signal }: Context, path: string): Promise<FrameSocket> {
  const socketName = socketPath(settings.runDir, ADMIN_SOCKET);
  const request: AgentRequest = { method: "GET", path, socket: ADMIN_SOCKET };
  const headers = { connection: "Upgrade", upgrade: LOCAL_STREAM_UPGRADE };
  const outgoing = httpRequest({ socketPath: socketName, path, agent: false, headers });
  const silence = watchSilence(clock, settings.timeoutMs, () =>
    outgoing.destroy(silent(socketName, settings.timeoutMs)),
  );
  const onAbort = (): void => void outgoing.destroy(toError(signal.reason));
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    signal.throwIfAborted();
    const answer = await new Promise<IncomingMessage | FrameSocket>((resolve, reject) => {
      outgoing.once("upgrade", (_, socket, head) => resolve(framedStream(socket, STREAM_LIMITS.takenFrameBytes, head)));
      outgoing.once("response", resolve);
      outgoing.on("error", reject);
      outgoing.end();
    });
    if ("listen" in answer) return answer;
    throw refusal(request, await wholeBody(answer));
  } catch (error) {
    outgoing.destroy();
    throw signal.aborted ? toError(signal.reason) : connectionError(socketName, toError(error), settings.given);
  } finally {
    silence.stop();
    signal.removeEventListener("abort", onAbort);
  }
}

interface Exchange {
  readonly message: IncomingMessage;
  /** Converts a failure of this exchange to an error for the user. */
  explain(thrown: unknown): Error;
  end(): void;
}

/** Sends the request and waits for the head of an answer with status 200. Then silence longer than the timeout plus `beatMs` closes it. */
async function begin({ settings, clock, signal }: Context, request: AgentRequest, beatMs: number): Promise<Exchange> {
  const socket = socketPath(settings.runDir, request.socket);
  const body = request.body === undefined ? "" : JSON.stringify(request.body);
  const outgoing = httpRequest({
    socketPath: socket,
    method: request.method,
    path: request.path,
    agent: false,
    headers: { "content-type": "application/json", "content-length": Buffer.byteLength(body) },
  });
  const silence = watchSilence(clock, settings.timeoutMs, () => outgoing.destroy(silent(socket, settings.timeoutMs)));
  const onAbort = (): void => void outgoing.destroy(toError(signal.reason));
  signal.addEventListener("abort", onAbort, { once: true });
  const end = (): void => {
    silence.stop();
    signal.removeEventListener("abort", onAbort);
    outgoing.destroy();
  };
  const explain = (thrown: unknown): Error =>
    signal.aborted ? toError(signal.reason) : connectionError(socket, toError(thrown), settings.given);
  try {
    signal.throwIfAborted();
    const message = await new Promise<IncomingMessage>((resolve, reject) => {
      outgoing.once("response", resolve);
      outgoing.on("error", reject);
      outgoing.end(body);
    });
    // A request that is destroyed ends its answer with "aborted" only; the reason is what the user must see.
    outgoing.on("error", (error) => message.destroy(error));
    message.on("data", () => silence.heard(settings.timeoutMs + beatMs));
    message.pause();
    if (message.statusCode !== 200) throw refusal(request, await wholeBody(message));
    return { message, explain, end };
  } catch (error) {
    end();
    throw explain(error);
  }
}

interface Silence {
  heard(allowedMs: number): void;
  stop(): void;
}

function watchSilence(clock: Clock, firstMs: number, onSilent: () => void): Silence {
  let cancel = clock.after(firstMs, onSilent);
  return {
    heard(allowedMs) {
      cancel();
      cancel = clock.after(allowedMs, onSilent);
    },
    stop: () => cancel(),
  };
}

async function wholeBody(message: IncomingMessage): Promise<Uint8Array> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of message as AsyncIterable<Buffer>) {
    size += chunk.byteLength;
    if (size > LOCAL_REPLY_LIMITS.maxBytes) {
      throw new InputError("too-large", `the answer exceeds ${LOCAL_REPLY_LIMITS.maxBytes} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function read<T>(request: AgentRequest, schema: z.ZodType<T>, bytes: Uint8Array): T {
  const parsed = schema.safeParse(parseStrictJson(bytes, LOCAL_REPLY_LIMITS));
  if (parsed.success) return parsed.data;
  const issues = describeIssues(parsed.error).slice(0, 5).join("; ");
  throw new SessionError(
    "invalid-reply",
    `the agent's answer to ${request.method} ${request.path} is not what this version understands (${issues}): restart the agent if it was upgraded`,
  );
}

function refusal(request: AgentRequest, bytes: Uint8Array): SessionError {
  const { error } = read(request, LocalError, bytes);
  return new SessionError(error.code, error.message, error.details === undefined ? {} : { details: error.details });
}

function silent(socket: string, timeoutMs: number): SessionError {
  return new SessionError(
    "timeout",
    `the agent behind ${socket} did not answer within ${timeoutMs / 1000} s: wait longer with --timeout, or restart the agent if it hangs`,
  );
}

function connectionError(socket: string, error: Error, given: GivenDirectories): Error {
  if (error instanceof SessionError || error instanceof HostError) return error;
  if (error instanceof InputError) {
    if (error.code === "path-too-long") return error;
    return new SessionError("invalid-reply", `the agent behind ${socket} sent an invalid answer: ${error.message}`, {
      cause: error,
    });
  }
  const code = errnoOf(error) ?? "";
  if (code.startsWith("HPE_")) {
    return new SessionError("invalid-reply", `the program on ${socket} does not speak HTTP: ${error.message}`, {
      cause: error,
    });
  }
  return new SessionError(
    "agent-unreachable",
    `no agent answers on ${socket}: ${reasonFor(code, given) ?? error.message}`,
    {
      cause: error,
      details: { socket, reason: code === "" ? error.message : code },
    },
  );
}

function reasonFor(code: string, given: GivenDirectories): string | undefined {
  const start = `start one with '${holdfastCommand("agent", given)}', or name its run directory with --run`;
  if (code === "ENOENT" || code === "ENOTDIR") return start;
  if (code === "ECONNREFUSED") return `its agent has ended: ${start}`;
  return Object.hasOwn(REASONS, code) ? REASONS[code] : undefined;
}

const REASONS: Readonly<Record<string, string>> = {
  EACCES: "permission denied: run as root or as a member of the agent's group",
  EPERM: "permission denied: run as root or as a member of the agent's group",
  ECONNRESET: "it closed the connection: it is stopping, or has reached its limit of callers",
  EPIPE: "it closed the connection: it is stopping, or has reached its limit of callers",
};

/** Reports whether no agent listens, as opposed to one that refuses, hangs or denies access. */
export function isAbsent(error: unknown): boolean {
  if (!(error instanceof SessionError) || error.code !== "agent-unreachable") return false;
  return ["ENOENT", "ENOTDIR", "ECONNREFUSED"].includes(String(error.details?.["reason"]));
}

/** A request to the admin socket. */
export function adminRequest(path: string, body: unknown): AgentRequest {
  return { method: "POST", path, socket: ADMIN_SOCKET, body };
}
