import { randomBytes, randomUUID } from "node:crypto";
import type { Duplex } from "node:stream";
import type { Logger } from "pino";
import type { RawData, WebSocket } from "ws";
import { InputError, toError } from "../../errors.ts";
import { AggregatedLog } from "../../host/aggregated-log.ts";
import type { Clock } from "../../host/clock.ts";
import type { DocumentName, NodeProofClaims } from "../../protocol/documents/claims.ts";
import { UNAUTHORIZED_IP } from "../../protocol/values/restriction.ts";
import { describeIssues, HANDSHAKE_LIMITS, parseMessage, PROTOCOL_VERSION } from "../../protocol/channel/envelope.ts";
import { errorCodes } from "../../protocol/values/error-codes.ts";
import { signJws } from "../../protocol/channel/jws.ts";
import { closeCodes, nodeMethods, type NodeMethods } from "../../protocol/channel/methods.ts";
import type { Handlers } from "../../protocol/channel/rpc.ts";
import { type EventLog } from "../events/service.ts";
import type { ControlKeys } from "./keys/control-keys.ts";
import { judgeHello } from "../nodes/identity.ts";
import { isPermitted } from "../nodes/ip-lock.ts";
import type { NodeCredentials } from "../nodes/store.ts";
import type { Atomic } from "../store/atomic.ts";
import type { NodeStore } from "../nodes/store.ts";
import type { TombstoneStore } from "../nodes/tombstone-store.ts";
import type { Announcer } from "./announcer.ts";
import type { Awaiting } from "./awaiting.ts";
import { deletedNotice } from "./deletion.ts";
import type { Documents } from "./documents/documents.ts";
import { verifyHello } from "./hello.ts";
import type { Refusals } from "./refusals.ts";
import { bytesOf, closeSocket, NodeSession, type SessionHooks } from "./session.ts";
import type { Sessions } from "./sessions.ts";
import type { Streams } from "./streams.ts";
import type { Triggers } from "./triggers.ts";
import { reportLock } from "../nodes/lock-report.ts";

export interface GreeterDeps {
  readonly store: Atomic & { readonly nodes: NodeStore; readonly tombstones: TombstoneStore };
  readonly sessions: Sessions;
  readonly documents: Documents;
  readonly triggers: Triggers;
  readonly streams: Pick<Streams, "sessionEnded">;
  readonly announcer: Announcer;
  readonly awaiting: Pick<Awaiting, "connected">;
  readonly events: EventLog;
  readonly refusals: Refusals;
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

/** A new socket: the WebSocket, its stream, and the client's address. */
interface NewSocket {
  readonly socket: WebSocket;
  readonly stream: Duplex;
  readonly address: string;
}

/** Runs challenge and hello on new sockets; a successful one becomes a session. */
export class Greeter {
  readonly #deps: GreeterDeps;
  readonly #hooks: SessionHooks;

  constructor(deps: GreeterDeps) {
    this.#deps = deps;
    const faults = new AggregatedLog(deps.log, deps.clock);
    this.#hooks = {
      clock: deps.clock,
      handlers: deps.handlers,
      onClose: (session) => {
        deps.streams.sessionEnded(session);
        try {
          deps.sessions.closed(session);
        } catch (error) {
          // A full disk must not affect the sessions of other nodes.
          deps.log.error({ node: session.uid, err: toError(error) }, "cannot store disconnect");
        }
      },
      onRefused: (session, kind, message) =>
        deps.refusals.note(kind, { uid: session.uid, address: session.address, message }),
      onFault: ({ uid }, method, err) =>
        faults.warn(`${uid} ${knownMethod(method)}`, { node: uid, method, err }, "message failed"),
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
        await this.#hello({ socket, stream, address }, frame, nonce, () => isDone);
        done();
      } catch (error) {
        this.#deps.log.error({ err: toError(error) }, "hello failed");
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

  async #hello(socketInfo: NewSocket, frame: Uint8Array, nonce: string, isClosed: () => boolean): Promise<void> {
    const { socket, address } = socketInfo;
    const { store, origin, tlsPins, clock } = this.#deps;
    const hello = readHello(frame);
    if ("error" in hello) {
      this.#deps.refusals.note("malformed", { address, message: hello.error });
      closeSocket(socket, closeCodes["not-authentic"], hello.error, clock);
      return;
    }
    const verdict = await verifyHello(hello.proof, { store, nonce, origin, tlsPins });
    if (isClosed()) return;
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
        await this.#open(socketInfo, hello.id, verdict, isClosed);
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

  async #open(
    socketInfo: NewSocket,
    id: number,
    { kind, claims }: { readonly kind: "authentic" | "unsupported"; readonly claims: NodeProofClaims },
    isClosed: () => boolean,
  ): Promise<void> {
    const { socket, stream, address } = socketInfo;
    const { store, documents, keys, clock, origin, tlsPins, heartbeatSeconds } = this.#deps;
    const uid = claims.iss;
    const sid = randomUUID();
    const isFollowed = kind === "unsupported" || this.#isStored(uid, () => documents.follow(uid, claims.have));
    const versions = documents.versions(uid);
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
    if (isClosed() || socket.readyState !== socket.OPEN) return;

    const before = store.nodes.credentials(uid);
    if (before === undefined) {
      await this.#sendDeleted(socket, claims);
      return;
    }
    const result = { proof, heartbeatSeconds, reportedVersion: before.reportedVersion };
    const closeWith = ({ code, text }: { readonly code: number; readonly text: string }): void => {
      // The node accepts a close code only after our proof.
      socket.send(JSON.stringify({ jsonrpc: "2.0", id, result }));
      closeSocket(socket, code, text, clock);
    };
    if (!isFollowed) return closeWith(FAULT);
    if (kind === "unsupported") return closeWith(UNSUPPORTED);
    if (this.#isFullFor(uid)) return closeWith(FULL);
    if (this.#yields(uid, before, address)) return closeWith(YIELDS);
    const session = new NodeSession({ uid, sid, cnonce: claims.cnonce, address, start }, socket, stream, this.#hooks);
    const neighbours = new Map<string, readonly DocumentName[]>();
    const isStored = this.#isStored(uid, () => {
      for (const [other, names] of store.atomic(() => this.#storeSession(session, claims, before)))
        neighbours.set(other, names);
    });
    if (!isStored) return closeWith(FAULT);
    session.answer(id, result);
    const current = documents.versions(uid);
    const changed = (["node", "cluster", "domain"] as const).filter((name) => current[name] !== versions[name]);
    for (const [other, names] of new Map([...neighbours, [uid, changed]])) this.#deps.announcer.changed(other, names);
    this.#deps.triggers.sessionOpened(session);
  }

  /** Reports whether a write to the store succeeded; a failure is ours, not the node's. */
  #isStored(uid: string, work: () => void): boolean {
    try {
      work();
      return true;
    } catch (error) {
      this.#deps.log.error({ node: uid, err: toError(error) }, "cannot store session");
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
    return sessions.size >= maxSessions && sessions.get(uid) === undefined;
  }

  /** Stores the new session and returns the changed documents of all nodes. */
  #storeSession(
    session: NodeSession,
    claims: NodeProofClaims,
    before: NodeCredentials,
  ): ReturnType<Documents["refresh"]> {
    const { store, sessions, events, clock } = this.#deps;
    const { trail, isShared } = judgeHello(before.trail, claims, clock.now());
    store.nodes.connected(session.uid, { lastConnect: clock.now(), lastIp: session.address, trail });
    this.#deps.awaiting.connected(session.uid);
    const changed = this.#applyLock(session, before);
    sessions.add(session, before.trail.n > 0);
    const node = isShared ? store.nodes.label(session.uid) : undefined;
    if (node === undefined) return changed;
    events.record(node, {
      eventType: "Identity Shared",
      level: "WARNING",
      message: `Two machines share one identity: ${before.lastIp ?? "unknown"} and ${session.address}`,
      details: {
        addresses: [before.lastIp ?? "unknown", session.address],
        n: claims.n,
        highest: before.trail.n,
        bootId: claims.bootId,
        held: trail.isHeld,
      },
    });
    return changed;
  }

  /** Sets a node INACTIVE while it connects from outside its lock, and restores it afterwards. */
  #applyLock({ uid, address }: NodeSession, before: NodeCredentials): ReturnType<Documents["refresh"]> {
    const { store, events, documents, refusals } = this.#deps;
    const { lockedTo } = before;
    const unauthorizedIp = isPermitted(lockedTo, address) ? undefined : address;
    if (unauthorizedIp === before.unauthorizedIp) return new Map();
    store.nodes.setUnauthorizedIp(uid, unauthorizedIp);
    const node = store.nodes.label(uid);
    if (node !== undefined) reportLock(events, node, before, { lockedTo, unauthorizedIp });
    // Further addresses are logged within the limits of refusals.
    if (unauthorizedIp !== undefined && before.unauthorizedIp !== undefined) {
      refusals.note(UNAUTHORIZED_IP, { uid, address, message: "the node is locked to other addresses" });
    }
    return documents.refresh([uid]);
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
