import type { Logger } from "pino";
import { AgentError, HostError, InputError, SessionError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { FrameSocket } from "../../host/net/frame-socket.ts";
import { withinTime } from "../../lib/async/within-time.ts";
import type { StreamClaims } from "../../protocol/documents/claims.ts";
import { isErrorCode } from "../../protocol/values/error-codes.ts";
import {
  MAX_STREAMS,
  STREAM_IDLE_MS,
  STREAM_OPEN_MS,
  streamError,
  type StreamEnd,
} from "../../protocol/channel/streams.ts";
import type { NodeState, NodeType } from "../../protocol/values/values.ts";
import type { OpenStream } from "../session/stream-transport.ts";
import type { TransportRequest } from "../session/transport.ts";
import type { OpenedStream, StreamKind } from "./kind.ts";
import { StreamLink } from "./stream-link.ts";

export interface StreamsOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly kinds: readonly StreamKind[];
  readonly dial: OpenStream;
  readonly node: () => { readonly type: NodeType; readonly state: NodeState };
}

/** A verified and judged order of the control plane (`judgeStream`). */
export interface StreamOrder {
  readonly claims: StreamClaims;
  readonly ticket: string;
  /** Dial options of the session: the stream connects to the same host. */
  readonly target: TransportRequest;
  /** Aborted when the session ends; the stream ends with it. */
  readonly session: AbortSignal;
}

/** An opened target that waits to be joined. */
export interface PreparedStream {
  /** Joins it to the other side until either ends; closes a side that is silent for `silentMs`. Never rejects. */
  join(socket: FrameSocket, signal: AbortSignal, silentMs?: number): Promise<void>;
  discard(): Promise<void>;
}

const CHECK_MS = 15_000;
const LAST_WORDS_MS = 2000;
/** The control plane pings four times within this time. */
const SILENT_MS = 60_000;
/** Limit of remembered orders; each is kept until it expires, so that none is executed twice. */
const MAX_ORDERS = 1024;

/** Streams of this node: at most eight, each joined to one program that ends with its other side. */
export class Streams {
  readonly #options: StreamsOptions;
  readonly #kinds: ReadonlyMap<string, StreamKind>;
  readonly #obeyed = new Map<string, number>();
  readonly #work = new Set<Promise<void>>();
  readonly #closing = new AbortController();
  #open = 0;

  constructor(options: StreamsOptions) {
    this.#options = options;
    this.#kinds = new Map(options.kinds.map((kind) => [kind.kind, kind]));
  }

  /**
   * Executes an order: resolves once the target is open, then dials.
   * @throws {InputError} `replayed`, `busy`, `not-supported`, `inactive`; errors of the kind.
   */
  async obey({ claims, ticket, target, session }: StreamOrder): Promise<void> {
    this.#remember(claims);
    const { kind, params, user, jti } = claims;
    const prepared = await this.prepare(kind, params, user, session);
    const signal = AbortSignal.any([session, this.#closing.signal]);
    void this.#track(async () => {
      try {
        const socket = await this.#options.dial(target, ticket, withinTime(signal, STREAM_OPEN_MS));
        await prepared.join(socket, session, SILENT_MS);
      } catch (error) {
        this.#options.log.warn({ id: jti, kind, reason: toError(error).message }, "stream could not connect");
      } finally {
        await prepared.discard();
      }
    });
  }

  /** Opens the target of a stream. The caller joins or discards it. @throws as `obey`. */
  async prepare(kind: string, params: unknown, user: string, signal: AbortSignal): Promise<PreparedStream> {
    const found = this.#admit(kind);
    this.#open += 1;
    const free = once(() => {
      this.#open -= 1;
    });
    const closing = this.#closing.signal;
    const late = new AbortController();
    const cancelDeadline = this.#options.clock.after(STREAM_OPEN_MS, () =>
      late.abort(new HostError("timeout", `it did not open within ${STREAM_OPEN_MS / 1000} s`)),
    );
    let opened: OpenedStream;
    try {
      // An open target stays bound to the signal, but not to the deadline of its opening.
      opened = await found.open(params, AbortSignal.any([signal, closing, late.signal]));
    } catch (error) {
      free();
      throw error;
    } finally {
      cancelDeadline();
    }
    const { subject } = opened;
    const log = this.#options.log.child({ kind, subject, user });
    const discard = async (): Promise<void> => {
      await opened.close().catch((error: unknown) => log.warn({ err: toError(error) }, "stream could not be released"));
      free();
    };
    return {
      discard,
      join: (socket, other, silentMs = Infinity) =>
        this.#track(async () => {
          log.info("stream opened");
          const signal = AbortSignal.any([other, closing]);
          const end = await this.#serve(opened, socket, signal, silentMs).catch((error: unknown) => endOf(error));
          await discard();
          const how = end.type === "exit" ? { exitCode: end.code } : { code: end.code, reason: end.message };
          log.info(how, "stream ended");
        }),
    };
  }

  /** Ends every stream; resolves once their programs have ended. */
  async close(): Promise<void> {
    this.#closing.abort(new HostError("interrupted", "the node is stopping"));
    await Promise.all(this.#work);
  }

  #admit(name: string): StreamKind {
    const kind = this.#kinds.get(name);
    if (kind === undefined) throw new InputError("not-supported", `there is no stream kind ${name}`);
    const { type, state } = this.#options.node();
    if (type === "Agent" && !kind.agents) throw new InputError("not-supported", `${name} exists on appliances only`);
    if (state === "INACTIVE" && kind.needsDataPlane) throw new InputError("inactive", `the node is INACTIVE`);
    if (this.#closing.signal.aborted) throw new InputError("busy", "the node is stopping");
    if (this.#open >= MAX_STREAMS) throw new InputError("busy", `${MAX_STREAMS} streams are open on this node`);
    return kind;
  }

  #remember({ jti, iat, exp }: StreamClaims): void {
    const now = this.#options.clock.elapsed();
    for (const [id, until] of this.#obeyed) if (until < now) this.#obeyed.delete(id);
    if (this.#obeyed.has(jti)) throw new InputError("replayed", `stream ${jti} was opened before`);
    if (this.#obeyed.size >= MAX_ORDERS) throw new InputError("busy", "too many streams were requested");
    // Session time may differ from the signer's by the leeway that the judge allows.
    this.#obeyed.set(jti, now + (exp - iat + 120) * 1000);
  }

  async #serve(opened: OpenedStream, socket: FrameSocket, signal: AbortSignal, silentMs: number): Promise<StreamEnd> {
    const { clock } = this.#options;
    const over = new AbortController();
    const link: StreamLink = new StreamLink({
      socket,
      clock,
      onCommand: (command) => opened.command(command, link),
    });
    const onAbort = (): void => over.abort(signal.reason);
    link.once("close", () => over.abort(new SessionError("cancelled", "the other side disconnected")));
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    link.begin();
    const stopWatching = this.#watch(link, silentMs, (reason) => over.abort(reason));
    try {
      const end = await opened.carry(link, over.signal).catch((error: unknown) => endOf(error));
      await opened.close();
      // A slow reader gets all that was written, but no wait once the stream was cut short.
      const limit = over.signal.aborted ? clock.sleep(LAST_WORDS_MS) : aborted(over.signal);
      await Promise.race([link.finish(end), limit]);
      return end;
    } finally {
      stopWatching();
      signal.removeEventListener("abort", onAbort);
      link.destroy();
    }
  }

  /** Ends streams without traffic, and those whose other side is silent. */
  #watch(link: StreamLink, silentMs: number, end: (reason: Error) => void): () => void {
    const { clock } = this.#options;
    let { carried } = link;
    let movedAt = clock.elapsed();
    let cancel = (): void => undefined;
    const check = (): void => {
      const now = clock.elapsed();
      if (carried !== link.carried) movedAt = now;
      ({ carried } = link);
      if (now - movedAt >= STREAM_IDLE_MS)
        end(new SessionError("timeout", "no data was sent in either direction for an hour"));
      if (!link.isHeldBack && now - link.heardAt > silentMs) {
        end(new SessionError("timeout", "the control plane stopped responding"));
      }
      cancel = clock.after(CHECK_MS, check);
    };
    cancel = clock.after(CHECK_MS, check);
    return () => cancel();
  }

  async #track(work: () => Promise<void>): Promise<void> {
    const running = work();
    this.#work.add(running);
    try {
      await running;
    } finally {
      this.#work.delete(running);
    }
  }
}

function once(run: () => void): () => void {
  let isDone = false;
  return () => {
    if (!isDone) run();
    isDone = true;
  };
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** Returns the failure for the caller: code and message of an expected error, no internals of a bug. */
function endOf(thrown: unknown): StreamEnd {
  if (thrown instanceof AgentError) {
    const code = thrown instanceof SessionError ? "offline" : "internal";
    return streamError(isErrorCode(thrown.code) ? thrown.code : code, thrown.message);
  }
  return streamError("internal", "internal error");
}
