import { randomBytes, randomUUID } from "node:crypto";
import type { Duplex } from "node:stream";
import type { Logger } from "pino";
import type { RawData, WebSocket } from "ws";
import { InputError, toError } from "../../errors.ts";
import { AggregatedLog } from "../../host/aggregated-log.ts";
import type { Clock } from "../../host/clock.ts";
import type { DeletedClaims, DocumentName, NodeProofClaims } from "../../protocol/documents/claims.ts";
import { UNAUTHORIZED_IP } from "../../protocol/values/restriction.ts";
import { describeIssues, HANDSHAKE_LIMITS, parseMessage, PROTOCOL_VERSION } from "../../protocol/channel/envelope.ts";
import { errorCodes } from "../../protocol/values/error-codes.ts";
import { signJws } from "../../protocol/channel/jws.ts";
import { closeCodes, nodeMethods, type NodeMethods } from "../../protocol/channel/methods.ts";
import type { Handlers } from "../../protocol/channel/rpc.ts";
import { reportLock, type EventLog } from "../event-log.ts";
import type { ControlKeys } from "../keys/control-keys.ts";
import { judgeHello } from "../model/identity.ts";
import { isPermitted } from "../model/ip-lock.ts";
import type { NodeCredentials } from "../store/nodes.ts";
import type { Store } from "../store/store.ts";
import type { Announcer } from "./announcer.ts";
import type { Awaiting } from "./awaiting.ts";
import type { Documents } from "./documents.ts";
import { verifyHello } from "./hello.ts";
import type { Refusals } from "./refusals.ts";
import { bytesOf, closeSocket, NodeSession, type SessionHooks } from "./session.ts";
import type { Sessions } from "./sessions.ts";
import type { Streams } from "./streams.ts";
import type { Triggers } from "./triggers.ts";

export interface GreeterDeps {
  readonly store: Store;
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
/** A frame's limit and room for the frame's own header. */
const HANDSHAKE_BYTES = HANDSHAKE_LIMITS.maxBytes + 16;
/** Why an authentic node is sent away; for one too many the text is the delay in seconds. */
const FULL = { code: closeCodes["too-many"], text: "300" } as const;
/** A session from an address outside the lock must not replace one from a permitted address. */
const YIELDS = {
  code: closeCodes.superseded,
  text: "a session from an address that the node is locked to is open",
} as const;
const UNSPOKEN = { code: closeCodes["protocol-version"], text: `protocol ${PROTOCOL_VERSION} is spoken` } as const;
/** RFC 6455 §7.4.1: the fault is ours, and says nothing about the node. */
const FAULT = { code: 1011, text: "internal error" } as const;

/** Somebody at the gate: the WebSocket, what carries it, and where from. */
interface Guest {
  readonly socket: WebSocket;
  readonly stream: Duplex;
  readonly address: string;
}

/** Takes new sockets through challenge and hello; one that succeeds becomes a session. */
export class Greeter {
  readonly #deps: GreeterDeps;
  readonly #hooks: SessionHooks;

  constructor(deps: GreeterDeps) {
    this.#deps = deps;
    const mistakes = new AggregatedLog(deps.log, deps.clock);
    this.#hooks = {
      clock: deps.clock,
      handlers: deps.handlers,
      onClose: (session) => {
        deps.streams.sessionEnded(session);
        try {
          deps.sessions.closed(session);
        } catch (error) {
          // A full disk must not take the other nodes' sessions along.
          deps.log.error({ node: session.uid, err: toError(error) }, "disconnect not stored");
        }
      },
      onRefused: (session, kind, message) =>
        deps.refusals.note(kind, { uid: session.uid, address: session.address, message }),
      onFault: ({ uid }, method, err) =>
        mistakes.warn(`${uid} ${knownMethod(method)}`, { node: uid, method, err }, "message failed"),
    };
  }

  /** Greets one socket. `onSettled` is called once, when the socket is authenticated or gone. */
  greet(socket: WebSocket, stream: Duplex, address: string, onSettled: () => void): void {
    const { clock } = this.#deps;
    const nonce = randomBytes(32).toString("base64url");
    const cancelDeadline = clock.after(HELLO_DEADLINE_MS, () => refuse("no hello in time"));
    let received = 0;
    const count = (chunk: Buffer): void => {
      received += chunk.byteLength;
      // The library's limit is the session's; what is not authenticated yet may not make us buffer that much.
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
    let hasSpoken = false;
    const onMessage = (data: RawData, isBinary: boolean): void => {
      if (hasSpoken || isBinary) {
        refuse("one text message before the answer to hello");
        return;
      }
      hasSpoken = true;
      void hear(bytesOf(data));
    };
    const hear = async (frame: Uint8Array): Promise<void> => {
      try {
        await this.#hello({ socket, stream, address }, frame, nonce, () => isDone);
        done();
      } catch (error) {
        this.#deps.log.error({ err: toError(error) }, "hello failed");
        done();
        closeSocket(socket, FAULT.code, FAULT.text, clock);
      }
    };
    // First in line, so that an oversized message is never taken for a hello.
    stream.prependListener("data", count);
    socket.on("message", onMessage);
    socket.once("close", done);
    const challenge = { nonce, protocol: PROTOCOL_VERSION };
    socket.send(JSON.stringify({ jsonrpc: "2.0", method: "session.challenge", params: challenge }));
  }

  async #hello(guest: Guest, frame: Uint8Array, nonce: string, isGone: () => boolean): Promise<void> {
    const { socket, address } = guest;
    const { store, origin, tlsPins, clock } = this.#deps;
    const hello = readHello(frame);
    if ("error" in hello) {
      this.#deps.refusals.note("malformed", { address, message: hello.error });
      closeSocket(socket, closeCodes["not-authentic"], hello.error, clock);
      return;
    }
    const verdict = await verifyHello(hello.proof, { store, nonce, origin, tlsPins });
    if (isGone()) return;
    switch (verdict.kind) {
      case "refused":
        this.#deps.refusals.note(verdict.why, { uid: verdict.uid, address, message: verdict.message });
        this.#refuse(socket, hello.id, verdict.message);
        return;
      case "deleted":
        await this.#sayDeleted(socket, verdict.claims);
        return;
      case "unspoken":
      case "authentic":
        await this.#open(guest, hello.id, verdict, isGone);
    }
  }

  #refuse(socket: WebSocket, id: number, message: string): void {
    const error = { code: errorCodes["bad-signature"].rpc, message, data: { code: "bad-signature" } };
    socket.send(JSON.stringify({ jsonrpc: "2.0", id, error }));
    closeSocket(socket, closeCodes["not-authentic"], "not-authentic", this.#deps.clock);
  }

  async #sayDeleted(socket: WebSocket, claims: NodeProofClaims): Promise<void> {
    const iat = Math.floor(this.#deps.clock.now() / 1000);
    const jws = await deletedNotice(this.#deps, { aud: claims.iss, nonce: claims.cnonce, iat });
    socket.send(JSON.stringify({ jsonrpc: "2.0", method: "session.deleted", params: { jws } }));
    closeSocket(socket, closeCodes.deleted, "deleted", this.#deps.clock);
  }

  async #open(
    guest: Guest,
    id: number,
    { kind, claims }: { readonly kind: "authentic" | "unspoken"; readonly claims: NodeProofClaims },
    isGone: () => boolean,
  ): Promise<void> {
    const { socket, stream, address } = guest;
    const { store, documents, keys, clock, origin, tlsPins, heartbeatSeconds } = this.#deps;
    const uid = claims.iss;
    const sid = randomUUID();
    const isFollowed = kind === "unspoken" || this.#isDone(uid, () => documents.follow(uid, claims.have));
    const versions = documents.versions(uid);
    const begins = { iat: Math.floor(clock.now() / 1000), sinceBoot: clock.sinceBoot() };
    const proof = await signJws(
      "holdfast-server-proof+jwt",
      {
        iss: origin,
        aud: uid,
        nonce: claims.cnonce,
        sid,
        iat: begins.iat,
        versions,
        ...(tlsPins.length === 0 ? {} : { tls: [...tlsPins] }),
      },
      keys.signing,
    );
    if (isGone() || socket.readyState !== socket.OPEN) return;

    const before = store.nodes.credentials(uid);
    if (before === undefined) {
      await this.#sayDeleted(socket, claims);
      return;
    }
    const result = { proof, heartbeatSeconds, reportedVersion: before.reportedVersion };
    const sendAway = ({ code, text }: { readonly code: number; readonly text: string }): void => {
      // A close code counts only once we have proved who we are.
      socket.send(JSON.stringify({ jsonrpc: "2.0", id, result }));
      closeSocket(socket, code, text, clock);
    };
    if (!isFollowed) return sendAway(FAULT);
    if (kind === "unspoken") return sendAway(UNSPOKEN);
    if (this.#isFullFor(uid)) return sendAway(FULL);
    if (this.#yields(uid, before, address)) return sendAway(YIELDS);
    const session = new NodeSession({ uid, sid, cnonce: claims.cnonce, address, begins }, socket, stream, this.#hooks);
    const neighbours = new Map<string, readonly DocumentName[]>();
    const isEntered = this.#isDone(uid, () => {
      for (const [other, names] of store.atomic(() => this.#enter(session, claims, before)))
        neighbours.set(other, names);
    });
    if (!isEntered) return sendAway(FAULT);
    session.answer(id, result);
    const current = documents.versions(uid);
    const changed = (["node", "cluster", "domain"] as const).filter((name) => current[name] !== versions[name]);
    for (const [other, names] of new Map([...neighbours, [uid, changed]])) this.#deps.announcer.changed(other, names);
    this.#deps.triggers.sessionOpened(session);
  }

  /** Whether the store took it: a node that has proved itself is told that it is not to blame. */
  #isDone(uid: string, work: () => void): boolean {
    try {
      work();
      return true;
    } catch (error) {
      this.#deps.log.error({ node: uid, err: toError(error) }, "a session could not be stored");
      return false;
    }
  }

  /** Reports whether a node that is locked to addresses has a session from one of them, while this is from another. */
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

  /** Returns the documents of all nodes that changed because of it. */
  #enter(session: NodeSession, claims: NodeProofClaims, before: NodeCredentials): ReturnType<Documents["refresh"]> {
    const { store, sessions, events, clock } = this.#deps;
    const { trail, isShared } = judgeHello(before.trail, claims, clock.now());
    store.nodes.connected(session.uid, { lastConnect: clock.now(), lastIp: session.address, trail });
    this.#deps.awaiting.connected(session.uid);
    const changed = this.#judgeAddress(session, before);
    sessions.add(session, before.trail.n > 0);
    const node = isShared ? store.nodes.label(session.uid) : undefined;
    if (node === undefined) return changed;
    events.record(node, {
      eventType: "Identity Shared",
      level: "WARNING",
      message: `Two machines use one identity: ${before.lastIp ?? "unknown"} and ${session.address}`,
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

  /** Holds a node INACTIVE that connects from an address outside its lock, and ends that when it connects from one inside. */
  #judgeAddress({ uid, address }: NodeSession, before: NodeCredentials): ReturnType<Documents["refresh"]> {
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

/** A signed notice that the node `aud` was deleted, as an answer to the nonce it chose. */
export function deletedNotice(
  deps: { readonly keys: ControlKeys; readonly origin: string },
  claims: Omit<DeletedClaims, "iss">,
): Promise<string> {
  return signJws("holdfast-deleted+jwt", { iss: deps.origin, ...claims }, deps.keys.signing);
}

/** The method as a kind of log line: names that the node makes up are one kind. */
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
