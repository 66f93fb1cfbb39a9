import { randomBytes, randomUUID } from "node:crypto";
import type { Duplex } from "node:stream";
import type { Logger } from "pino";
import type { RawData, WebSocket } from "ws";
import { InputError, toError } from "../../errors.ts";
import { AggregatedLog } from "../../host/aggregated-log.ts";
import type { Clock } from "../../host/clock.ts";
import { DocumentName, type NodeProofClaims } from "../../protocol/documents/claims.ts";
import { UNAUTHORIZED_IP } from "../../protocol/values/restriction.ts";
import { describeIssues, HANDSHAKE_LIMITS, parseMessage, PROTOCOL_VERSION } from "../../protocol/channel/envelope.ts";
import { errorCodes } from "../../protocol/values/error-codes.ts";
import { signJws } from "../../protocol/channel/jws.ts";
import { closeCodes, nodeMethods, type NodeMethods } from "../../protocol/channel/methods.ts";
import type { Handlers } from "../../protocol/channel/rpc.ts";
import type { KeyedQueue } from "../../lib/async/keyed-queue.ts";
import type { EventLog } from "../events/service.ts";
import type { ControlKeys } from "./keys/control-keys.ts";
import { judgeHello } from "../nodes/identity.ts";
import { isPermitted } from "../nodes/ip-lock.ts";
import type { NodeCredentials, NodeStore } from "../nodes/store.ts";
import type { Transact } from "../store/transact.ts";
import type { TombstoneStore } from "../nodes/tombstone-store.ts";
import type { Announcer } from "./announcer.ts";
import type { Awaiting, AwaitingParts } from "./awaiting.ts";
import { deletedNotice } from "./deletion.ts";
import type { DocumentParts, Documents } from "./documents/documents.ts";
import { verifyHello, type KnownHello } from "./hello.ts";
import type { Refusals } from "./refusals.ts";
import { bytesOf, closeSocket, NodeSession, type SessionHooks } from "./session.ts";
import type { Entrance, SessionParts, Sessions } from "./sessions.ts";
import type { Streams } from "./streams.ts";
import type { Triggers } from "./triggers.ts";
import { reportLock } from "../nodes/lock-report.ts";

/** Stores of an open transaction that stores a session. */
export type GreeterParts = SessionParts & AwaitingParts & DocumentParts & { readonly nodes: NodeStore };

export interface GreeterDeps {
  readonly store: Transact<GreeterParts> & {
    readonly nodes: Pick<NodeStore, "credentials">;
    readonly tombstones: Pick<TombstoneStore, "get">;
  };
  readonly sessions: Sessions;
  readonly documents: Documents;
  readonly triggers: Triggers;
  readonly streams: Pick<Streams, "sessionEnded">;
  readonly announcer: Announcer;
  readonly awaiting: Pick<Awaiting, "connected">;
  readonly events: EventLog;
  readonly refusals: Pick<Refusals, "note">;
  /** Work on one node at a time. */
  readonly turns: Pick<KeyedQueue, "run">;
  readonly keys: ControlKeys;
  readonly clock: Clock;
  readonly log: Logger;
  readonly origin: string;
  readonly tlsPins: readonly string[];
  readonly heartbeatSeconds: number;
  readonly maxSessions: number;
  readonly handlers: (session: NodeSession) => Handlers<NodeMethods>;
}

const HELLO_DEADLINE_MS = 10_000;
/** Limit of a frame plus its header, in bytes. */
const HANDSHAKE_BYTES = HANDSHAKE_LIMITS.maxBytes + 16;
/** Close code of a node above the session limit; the text is the retry delay in seconds. */
const FULL = { code: closeCodes["too-many"], text: "300" } as const;
/** Close code of a session from outside the lock, which must not replace one from a permitted address. */
const YIELDS = {
  code: closeCodes.superseded,
  text: "the node has an open session from a permitted address",
} as const;
const UNSUPPORTED = {
  code: closeCodes["protocol-version"],
  text: `protocol version ${PROTOCOL_VERSION} is required`,
} as const;
/** RFC 6455 §7.4.1: our fault, not the node's. */
const FAULT = { code: 1011, text: "internal error" } as const;

/** RFC 6455 §7.4.1. */
const LEAVING = { code: 1001, text: "controller is shutting down" } as const;

/** A new socket: the WebSocket, its stream, the client's address, and its handshake. */
interface NewSocket {
  readonly socket: WebSocket;
  readonly stream: Duplex;
  readonly address: string;
  /** Whether the handshake has ended, and what ends it. */
  readonly isDone: () => boolean;
  readonly done: () => void;
}

/** Consequences of a stored session: changed documents of all nodes, and whether it came from yet another address outside its lock. */
interface Stored {
  readonly changed: Awaited<ReturnType<Documents["refresh"]>>;
  readonly isElsewhere: boolean;
}

/** Runs challenge and hello on new sockets; a successful one becomes a session. */
export class Greeter {
  readonly #deps: GreeterDeps;
  readonly #hooks: SessionHooks;
  /** Limits lines that nodes and strangers can cause: about their mistakes, and about our own failures while the store fails. */
  readonly #repeated: AggregatedLog;
  /** Nodes whose session is being stored. */
  readonly #entering = new Set<string>();

  constructor(deps: GreeterDeps) {
    this.#deps = deps;
    this.#repeated = new AggregatedLog(deps.log, deps.clock);
    this.#hooks = {
      clock: deps.clock,
      handlers: deps.handlers,
      onClose: (session) => {
        deps.streams.sessionEnded(session);
        deps.sessions.closed(session);
      },
      onRefused: (session, kind, message) =>
        deps.refusals.note(kind, { uid: session.uid, address: session.address, message }),
      onFault: ({ uid }, method, err) =>
        this.#repeated.warn(`${uid} ${knownMethod(method)}`, { node: uid, method, err }, "message failed"),
    };
  }

  /** Starts the handshake of one socket. Calls `onSettled` once, when the socket is authenticated or closed. */
  greet(socket: WebSocket, stream: Duplex, address: string, onSettled: () => void): void {
    const { clock } = this.#deps;
    const nonce = randomBytes(32).toString("base64url");
    const cancelDeadline = clock.after(HELLO_DEADLINE_MS, () => refuse("no hello in time"));
    let received = 0;
    const count = (chunk: Buffer): void => {
      received += chunk.byteLength;
      // The library's limit is that of a session; an unauthenticated peer must not make us buffer that much.
      if (received > HANDSHAKE_BYTES) {
        socket.pause();
        done();
        closeSocket(socket, 1009, "too large before hello", clock);
        this.#deps.refusals.note("too-large", { address, message: "too large before hello" });
      }
    };
    let isDone = false;
    const done = (): void => {
      if (isDone) return;
      isDone = true;
      cancelDeadline();
      stream.off("data", count);
      socket.off("message", onMessage);
      socket.off("close", done);
      onSettled();
    };
    const refuse = (message: string): void => {
      done();
      closeSocket(socket, closeCodes["not-authentic"], message, clock);
    };
    let hasReceived = false;
    const onMessage = (data: RawData, isBinary: boolean): void => {
      if (hasReceived || isBinary) {
        refuse("expected one text message before the hello response");
        return;
      }
      hasReceived = true;
      void handle(bytesOf(data));
    };
    const handle = async (frame: Uint8Array): Promise<void> => {
      try {
        await this.#hello({ socket, stream, address, isDone: () => isDone, done }, frame, nonce);
        done();
      } catch (error) {
        this.#repeated.error("hello", { err: toError(error) }, "hello failed");
        done();
        closeSocket(socket, FAULT.code, FAULT.text, clock);
      }
    };
    // Runs first, so that an oversized message is never parsed as a hello.
    stream.prependListener("data", count);
    socket.on("message", onMessage);
    socket.once("close", done);
    const challenge = { nonce, protocol: PROTOCOL_VERSION };
    socket.send(JSON.stringify({ jsonrpc: "2.0", method: "session.challenge", params: challenge }));
  }

  async #hello(socketInfo: NewSocket, frame: Uint8Array, nonce: string): Promise<void> {
    const { socket, address, isDone } = socketInfo;
    const { store, origin, tlsPins, clock } = this.#deps;
    const hello = readHello(frame);
    if ("error" in hello) {
      this.#deps.refusals.note("malformed", { address, message: hello.error });
      closeSocket(socket, closeCodes["not-authentic"], hello.error, clock);
      return;
    }
    const verdict = await verifyHello(hello.proof, { store, nonce, origin, tlsPins });
    if (isDone()) return;
    switch (verdict.kind) {
      case "refused":
        this.#deps.refusals.note(verdict.why, { uid: verdict.uid, address, message: verdict.message });
        this.#refuse(socket, hello.id, verdict.message);
        return;
      case "deleted":
        await this.#sendDeleted(socket, verdict.claims);
        return;
      case "unsupported":
      case "authentic":
        // Verified outside the node's turn, so that others cannot delay it.
        await this.#deps.turns.run(verdict.claims.iss, () => this.#open(socketInfo, hello.id, verdict));
    }
  }

  #refuse(socket: WebSocket, id: number, message: string): void {
    const error = { code: errorCodes["bad-signature"].rpc, message, data: { code: "bad-signature" } };
    socket.send(JSON.stringify({ jsonrpc: "2.0", id, error }));
    closeSocket(socket, closeCodes["not-authentic"], "not-authentic", this.#deps.clock);
  }

  async #sendDeleted(socket: WebSocket, claims: NodeProofClaims): Promise<void> {
    const iat = Math.floor(this.#deps.clock.now() / 1000);
    const jws = await deletedNotice(this.#deps, { aud: claims.iss, nonce: claims.cnonce, iat });
    socket.send(JSON.stringify({ jsonrpc: "2.0", method: "session.deleted", params: { jws } }));
    closeSocket(socket, closeCodes.deleted, "deleted", this.#deps.clock);
  }

  /** Opens a session for a verified hello, in the node's turn. The node may have been deleted while it waited. */
  async #open(
    { socket, stream, address, isDone, done }: NewSocket,
    id: number,
    { kind, claims, signer }: KnownHello,
  ): Promise<void> {
    if (isDone()) return;
    const { store, sessions, documents, announcer, keys, clock, origin, tlsPins, heartbeatSeconds } = this.#deps;
    const uid = claims.iss;
    const sid = randomUUID();
    const isFollowed = kind === "unsupported" || (await this.#isStored(uid, () => documents.follow(uid, claims.have)));
    const versions = await documents.versions(uid);
    const start = { iat: Math.floor(clock.now() / 1000), sinceBoot: clock.sinceBoot() };
    const proof = await signJws(
      "holdfast-server-proof+jwt",
      {
        iss: origin,
        aud: uid,
        nonce: claims.cnonce,
        sid,
        iat: start.iat,
        versions,
        ...(tlsPins.length === 0 ? {} : { tls: [...tlsPins] }),
      },
      keys.signing,
    );
    const before = await store.nodes.credentials(uid);
    if (isDone() || socket.readyState !== socket.OPEN) return;
    if (before === undefined) return this.#sendDeleted(socket, claims);
    if (before.thumbprints.auth !== signer) return this.#refuse(socket, id, "the key of the node has changed");
    const result = { proof, heartbeatSeconds, reportedVersion: before.reportedVersion };
    const closeWith = ({ code, text }: { readonly code: number; readonly text: string }): void => {
      // The node accepts a close code only after our proof.
      socket.send(JSON.stringify({ jsonrpc: "2.0", id, result }));
      closeSocket(socket, code, text, clock);
    };
    if (!isFollowed) return closeWith(FAULT);
    if (kind === "unsupported") return closeWith(UNSUPPORTED);
    if (sessions.isClosed) return closeWith(LEAVING);
    if (this.#isFullFor(uid)) return closeWith(FULL);
    if (this.#yields(uid, before, address)) return closeWith(YIELDS);
    const session = new NodeSession({ uid, sid, cnonce: claims.cnonce, address, start }, socket, stream, this.#hooks);
    const entrance = sessions.entrance(session, before.trail.n > 0);
    let stored: Stored | "deleted" | undefined;
    this.#entering.add(uid);
    const isStored = await this.#isStored(uid, async () => {
      stored = await store.transact((tx) => this.#storeSession(tx, session, claims, entrance));
    });
    this.#entering.delete(uid);
    if (!isStored || stored === undefined) return closeWith(FAULT);
    if (stored === "deleted") return this.#sendDeleted(socket, claims);
    // From here on messages belong to the session.
    done();
    entrance.enter();
    session.answer(id, result);
    if (stored.isElsewhere) {
      // Further addresses are logged within the limits of refusals.
      this.#deps.refusals.note(UNAUTHORIZED_IP, { uid, address, message: "the node is locked to other addresses" });
    }
    for (const [other, names] of stored.changed) announcer.changed(other, names);
    const current = await documents.versions(uid);
    announcer.changed(
      uid,
      DocumentName.options.filter((name) => current[name] !== versions[name]),
    );
    await this.#deps.triggers.sessionOpened(session);
  }

  /** Reports whether a write to the store succeeded; a failure is ours, not the node's. */
  async #isStored(uid: string, work: () => Promise<unknown>): Promise<boolean> {
    try {
      await work();
      return true;
    } catch (error) {
      this.#repeated.error(uid, { node: uid, err: toError(error) }, "cannot store session");
      return false;
    }
  }

  /** Reports whether a locked node connects from outside its lock while its session from a permitted address is open. */
  #yields(uid: string, { lockedTo }: NodeCredentials, address: string): boolean {
    const open = this.#deps.sessions.get(uid);
    if (open === undefined || isPermitted(lockedTo, address) || !isPermitted(lockedTo, open.address)) return false;
    this.#deps.refusals.note(UNAUTHORIZED_IP, { uid, address, message: YIELDS.text });
    return true;
  }

  #isFullFor(uid: string): boolean {
    const { sessions, maxSessions } = this.#deps;
    // Most hellos are far from the limit, and need no count of those that enter without replacing a session.
    if (sessions.size + this.#entering.size < maxSessions || sessions.get(uid) !== undefined) return false;
    const entering = [...this.#entering].filter((other) => sessions.get(other) === undefined);
    return sessions.size + entering.length >= maxSessions;
  }

  /** Stores the new session. */
  async #storeSession(
    tx: GreeterParts,
    session: NodeSession,
    claims: NodeProofClaims,
    entrance: Entrance,
  ): Promise<Stored | "deleted"> {
    const { events, clock, awaiting } = this.#deps;
    const { uid, address } = session;
    const before = await tx.nodes.credentials(uid);
    if (before === undefined) return "deleted";
    const { trail, isShared } = judgeHello(before.trail, claims, clock.now());
    await tx.nodes.connected(uid, { lastConnect: clock.now(), lastIp: address, trail });
    await awaiting.connected(tx, uid);
    const lock = await this.#applyLock(tx, session, before);
    await entrance.record(tx);
    const node = isShared ? await tx.nodes.label(uid) : undefined;
    if (node === undefined) return lock;
    await events.record(tx, node, {
      eventType: "Identity Shared",
      level: "WARNING",
      message: `Two machines share one identity: ${before.lastIp ?? "unknown"} and ${address}`,
      details: {
        addresses: [before.lastIp ?? "unknown", address],
        n: claims.n,
        highest: before.trail.n,
        bootId: claims.bootId,
        held: trail.isHeld,
      },
    });
    return lock;
  }

  /** Sets a node INACTIVE while it connects from outside its lock, and restores it afterwards. */
  async #applyLock(tx: GreeterParts, { uid, address }: NodeSession, before: NodeCredentials): Promise<Stored> {
    const { events, documents } = this.#deps;
    const { lockedTo } = before;
    const unauthorizedIp = isPermitted(lockedTo, address) ? undefined : address;
    if (unauthorizedIp === before.unauthorizedIp) return { changed: new Map(), isElsewhere: false };
    await tx.nodes.setUnauthorizedIp(uid, unauthorizedIp);
    const node = await tx.nodes.label(uid);
    if (node !== undefined) await reportLock(tx, events, node, before, { lockedTo, unauthorizedIp });
    const isElsewhere = unauthorizedIp !== undefined && before.unauthorizedIp !== undefined;
    return { changed: await documents.refresh(tx, [uid]), isElsewhere };
  }
}

/** Returns the method as a log key; unknown names share one. */
function knownMethod(method: string): string {
  return Object.hasOwn(nodeMethods, method) ? method : "unknown";
}

function readHello(frame: Uint8Array): { readonly id: number; readonly proof: string } | { readonly error: string } {
  try {
    const message = parseMessage(frame, HANDSHAKE_LIMITS);
    if (message.kind !== "request" || message.method !== "session.hello") return { error: "expected session.hello" };
    const params = nodeMethods["session.hello"].params.safeParse(message.params);
    if (!params.success) return { error: describeIssues(params.error).join("; ") };
    return { id: message.id, proof: params.data.proof };
  } catch (error) {
    if (error instanceof InputError) return { error: error.message };
    throw error;
  }
}
