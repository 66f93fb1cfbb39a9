import { createHash, randomUUID } from "node:crypto";
import { AgentError, InputError, SessionError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { FrameSocket } from "../../host/net/frame-socket.ts";
import { signJws } from "../../protocol/channel/jws.ts";
import { STREAM_OPEN_MS, streamError, type StreamEnd, type StreamKindName } from "../../protocol/channel/streams.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import type { ControlKeys } from "./keys/control-keys.ts";
import { joinStreams, type JoinedStream } from "./join-streams.ts";
import { offline, type NodeSession } from "./session.ts";
import type { Sessions } from "./sessions.ts";
import { Tickets } from "./tickets.ts";

export interface StreamsDeps {
  readonly sessions: Pick<Sessions, "get">;
  readonly keys: Pick<ControlKeys, "signing">;
  readonly clock: Clock;
  readonly origin: string;
}

/** Stream that a node is ordered to open. */
export interface StreamRequest {
  readonly kind: StreamKindName;
  readonly params: JsonObject;
  readonly user: string;
}

/** A stream whose node side has connected. The requester joins or discards it. */
export interface NodeStream {
  /** Joins it to a caller; resolves with its end. Never rejects. */
  join(client: FrameSocket): Promise<StreamEnd>;
  discard(): void;
}

/** Time limit in milliseconds: the node responds within `STREAM_OPEN_MS`, and has as long to dial. */
const GUARD_MS = 2 * STREAM_OPEN_MS + 5000;
/** Lifetime of a ticket, in seconds. */
const EXPIRY_SECONDS = 60;
const MAX_STREAMS_PER_NODE = 16;
const MAX_STREAMS = 1024;

interface Waiting {
  readonly session: NodeSession;
  readonly arrive: (socket: FrameSocket) => void;
  readonly fail: (error: Error) => void;
}

interface Open {
  readonly session: NodeSession;
  end(reason: StreamEnd): void;
}

/** Streams between callers and nodes. Each is opened by a signed order and accepted by a one-time ticket. */
export class Streams {
  readonly #deps: StreamsDeps;
  readonly #tickets: Tickets<string>;
  readonly #waiting = new Map<string, Waiting>();
  readonly #open = new Set<Open>();
  #isClosed = false;

  constructor(deps: StreamsDeps) {
    this.#deps = deps;
    this.#tickets = new Tickets<string>(deps.clock);
  }

  /**
   * Orders a node to open a stream and waits until it connects.
   * @throws {InputError} `offline`, `busy`, `cancelled`, `timeout`; {SessionError} the node's error
   */
  async open(uid: string, request: StreamRequest, signal: AbortSignal): Promise<NodeStream> {
    const session = this.#deps.sessions.get(uid);
    if (session === undefined || this.#isClosed) throw offline(uid);
    this.#checkLimits(uid, session);
    const id = randomUUID();
    const ticket = this.#tickets.issue(id);
    const stop = new AbortController();
    const onAbort = (): void => this.#waiting.get(id)?.fail(new InputError("cancelled", "the caller disconnected"));
    const late = new InputError("timeout", `${request.kind}: the node did not connect in time`);
    const cancelGuard = this.#deps.clock.after(GUARD_MS, () => this.#waiting.get(id)?.fail(late));
    let arrived: FrameSocket | undefined;
    const arrival = new Promise<FrameSocket>((resolve, reject) => {
      const arrive = (socket: FrameSocket): void => {
        arrived = socket;
        resolve(socket);
      };
      const fail = (error: Error): void => {
        stop.abort(error);
        reject(error);
      };
      this.#waiting.set(id, { session, arrive, fail });
    });
    arrival.catch(() => undefined);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    try {
      const jws = await this.#sign(uid, session, id, ticket, request);
      await session.peer.request("stream.open", { jws, ticket }, stop.signal);
      return this.#opened(session, await arrival);
    } catch (error) {
      arrived?.terminate();
      throw answerOf(toError(error), uid);
    } finally {
      this.#tickets.redeem(ticket);
      this.#waiting.delete(id);
      cancelGuard();
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** Returns the handler of a socket with this ticket; undefined if nobody waits for it. */
  admit(ticket: string): ((socket: FrameSocket) => void) | undefined {
    const id = this.#tickets.redeem(ticket);
    const waiting = id === undefined ? undefined : this.#waiting.get(id);
    if (waiting === undefined || this.#deps.sessions.get(waiting.session.uid) !== waiting.session) return undefined;
    return waiting.arrive;
  }

  /** Ends the streams of a closed session. */
  sessionEnded(session: NodeSession): void {
    for (const waiting of this.#waiting.values()) if (waiting.session === session) waiting.fail(offline(session.uid));
    for (const open of this.#open) {
      if (open.session === session) open.end(streamError("offline", "the node's session closed"));
    }
  }

  close(): void {
    this.#isClosed = true;
    const stops = new InputError("interrupted", "the controller is shutting down");
    for (const { fail } of this.#waiting.values()) fail(stops);
    for (const open of this.#open) open.end(streamError("interrupted", stops.message));
  }

  #opened(session: NodeSession, socket: FrameSocket): NodeStream {
    let joined: JoinedStream | undefined;
    const discard = (): void => {
      this.#open.delete(open);
      if (joined === undefined) socket.terminate();
    };
    const open: Open = { session, end: (reason) => (joined === undefined ? discard() : joined.end(reason)) };
    this.#open.add(open);
    return {
      discard,
      join: async (client) => {
        joined = joinStreams(client, socket, this.#deps.clock);
        if (!this.#open.has(open)) joined.end(streamError("offline", "the node's session closed"));
        const end = await joined.ended;
        this.#open.delete(open);
        return end;
      },
    };
  }

  #sign(uid: string, session: NodeSession, id: string, ticket: string, request: StreamRequest): Promise<string> {
    const { keys, origin } = this.#deps;
    const iat = session.now();
    const claims = {
      iss: origin,
      aud: uid,
      sid: session.sid,
      jti: id,
      kind: request.kind,
      params: request.params,
      user: request.user,
      th: createHash("sha256").update(ticket).digest("base64url"),
      iat,
      exp: iat + EXPIRY_SECONDS,
    };
    return signJws("holdfast-stream+jwt", claims, keys.signing);
  }

  #checkLimits(uid: string, session: NodeSession): void {
    if (session.isCongested) throw new InputError("busy", `node ${uid} is not reading: too much data is unsent`);
    const all = [...this.#open, ...this.#waiting.values()];
    const ofNode = all.filter((one) => one.session.uid === uid).length;
    if (ofNode >= MAX_STREAMS_PER_NODE)
      throw new InputError("busy", `node ${uid} has ${ofNode} open streams, the limit`);
    if (all.length >= MAX_STREAMS) throw new InputError("busy", `the limit of ${MAX_STREAMS} open streams is reached`);
  }
}

/** Maps a session that closed during the request to `offline`. */
function answerOf(error: Error, uid: string): Error {
  if (error instanceof SessionError && error.code === "session-closed") return offline(uid);
  return error instanceof AgentError ? error : new SessionError("internal", error.message, { cause: error });
}
