import { createHash, randomUUID } from "node:crypto";
import { AgentError, InputError, SessionError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { FrameSocket } from "../../host/net/frame-socket.ts";
import { signJws } from "../../protocol/channel/jws.ts";
import { STREAM_OPEN_MS, streamError, type StreamEnd, type StreamKindName } from "../../protocol/channel/streams.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import type { ControlKeys } from "../keys/control-keys.ts";
import { joinStreams, type Joint } from "./join-streams.ts";
import { offline, type NodeSession } from "./session.ts";
import type { Sessions } from "./sessions.ts";
import { Tickets } from "./tickets.ts";

export interface StreamsDeps {
  readonly sessions: Pick<Sessions, "get">;
  readonly keys: Pick<ControlKeys, "signing">;
  readonly clock: Clock;
  readonly origin: string;
}

/** What a node is asked to open. */
export interface StreamRequest {
  readonly kind: StreamKindName;
  readonly params: JsonObject;
  readonly user: string;
}

/** A stream whose node's side has come. Whoever asked joins or discards it. */
export interface NodeStream {
  /** Joins it to a caller; resolves with how it ended. Never rejects. */
  join(client: FrameSocket): Promise<StreamEnd>;
  discard(): void;
}

/** The node answers within `STREAM_OPEN_MS`, and has as long to dial. */
const GUARD_MS = 2 * STREAM_OPEN_MS + 5000;
/** As long as a ticket is good. */
const EXPIRY_SECONDS = 60;
const MAX_STREAMS_OF_NODE = 16;
const MAX_STREAMS_IN_ALL = 1024;

interface Waiting {
  readonly session: NodeSession;
  readonly arrive: (socket: FrameSocket) => void;
  readonly fail: (error: Error) => void;
}

interface Open {
  readonly session: NodeSession;
  end(reason: StreamEnd): void;
}

/** Streams between callers and nodes: each is opened by a signed order, and taken in by a ticket that is good once. */
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
   * Has a node open a stream and waits for it to come.
   * @throws {InputError} `offline`, `busy`, `cancelled`, `timeout`; {SessionError} what the node answered.
   */
  async open(uid: string, request: StreamRequest, signal: AbortSignal): Promise<NodeStream> {
    const session = this.#deps.sessions.get(uid);
    if (session === undefined || this.#isClosed) throw offline(uid);
    this.#checkRoom(uid, session);
    const id = randomUUID();
    const ticket = this.#tickets.issue(id);
    const stop = new AbortController();
    const onAbort = (): void => this.#waiting.get(id)?.fail(new InputError("cancelled", "the caller is gone"));
    const late = new InputError("timeout", `${request.kind}: the node's side did not come in time`);
    const cancelGuard = this.#deps.clock.after(GUARD_MS, () => this.#waiting.get(id)?.fail(late));
    let arrived: FrameSocket | undefined;
    const coming = new Promise<FrameSocket>((resolve, reject) => {
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
    coming.catch(() => undefined);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    try {
      const jws = await this.#sign(uid, session, id, ticket, request);
      await session.peer.request("stream.open", { jws, ticket }, stop.signal);
      return this.#opened(session, await coming);
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

  /** What to do with the socket that brings this ticket; undefined when nobody waits for it. */
  admit(ticket: string): ((socket: FrameSocket) => void) | undefined {
    const id = this.#tickets.redeem(ticket);
    const waiting = id === undefined ? undefined : this.#waiting.get(id);
    if (waiting === undefined || this.#deps.sessions.get(waiting.session.uid) !== waiting.session) return undefined;
    return waiting.arrive;
  }

  /** Ends what was opened in a session that is over: who ended it may have had a reason. */
  sessionEnded(session: NodeSession): void {
    for (const waiting of this.#waiting.values()) if (waiting.session === session) waiting.fail(offline(session.uid));
    for (const open of this.#open) {
      if (open.session === session) open.end(streamError("offline", "the node has lost its session"));
    }
  }

  close(): void {
    this.#isClosed = true;
    const stops = new InputError("interrupted", "the controller stops");
    for (const { fail } of this.#waiting.values()) fail(stops);
    for (const open of this.#open) open.end(streamError("interrupted", stops.message));
  }

  #opened(session: NodeSession, socket: FrameSocket): NodeStream {
    let joint: Joint | undefined;
    const discard = (): void => {
      this.#open.delete(open);
      if (joint === undefined) socket.terminate();
    };
    const open: Open = { session, end: (reason) => (joint === undefined ? discard() : joint.end(reason)) };
    this.#open.add(open);
    return {
      discard,
      join: async (client) => {
        joint = joinStreams(client, socket, this.#deps.clock);
        if (!this.#open.has(open)) joint.end(streamError("offline", "the node has lost its session"));
        const end = await joint.ended;
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

  #checkRoom(uid: string, session: NodeSession): void {
    if (session.isCongested) throw new InputError("busy", `node ${uid} does not read what it was sent`);
    const all = [...this.#open, ...this.#waiting.values()];
    const ofNode = all.filter((one) => one.session.uid === uid).length;
    if (ofNode >= MAX_STREAMS_OF_NODE) throw new InputError("busy", `node ${uid} has ${ofNode} streams`);
    if (all.length >= MAX_STREAMS_IN_ALL) throw new InputError("busy", `${MAX_STREAMS_IN_ALL} streams are open`);
  }
}

/** A session that ends in the middle is a node that went offline. */
function answerOf(error: Error, uid: string): Error {
  if (error instanceof SessionError && error.code === "session-closed") return offline(uid);
  return error instanceof AgentError ? error : new SessionError("internal", error.message, { cause: error });
}
