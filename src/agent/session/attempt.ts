import { randomBytes } from "node:crypto";
import { AgentError, SessionError, toError } from "../../errors.ts";
import type { AggregatedLog } from "../../host/aggregated-log.ts";
import type { Clock } from "../../host/clock.ts";
import type { ServerProofClaims } from "../../protocol/documents/claims.ts";
import {
  HANDSHAKE_LIMITS,
  parseMessage,
  refuseEnvelope,
  SESSION_LIMITS,
  type Message,
} from "../../protocol/channel/envelope.ts";
import { controlMethods, nodeMethods, type ControlMethods, type NodeMethods } from "../../protocol/channel/methods.ts";
import { RemoteError, RpcPeer, type Handlers } from "../../protocol/channel/rpc.ts";
import { unansweredText, type AnswerWatch, type Outcome } from "./answers.ts";
import type { Ending } from "./backoff.ts";
import { judgeEnd, judgeRefusal } from "./ending.ts";
import type { OpenTransport, Transport, TransportEnd, TransportRequest } from "./transport.ts";

export type ControlPlaneRpc = RpcPeer<ControlMethods, NodeMethods>;

/** An authenticated session while it lasts. */
export interface Connection {
  readonly sid: string;
  readonly rpc: ControlPlaneRpc;
  /** The verified proof of the control plane, with its document versions. */
  readonly proof: ServerProofClaims;
  readonly heartbeatMs: number;
  /** The shadow version that the control plane has acknowledged. */
  readonly reportedVersion: number;
  /** Aborted when the session ends. */
  readonly signal: AbortSignal;
  /** Unix seconds by the control plane's clock, advanced by a clock of this machine that neither jumps nor sleeps. */
  sessionNow(): number;
  rttMs(): number | undefined;
  /** Notes that a heartbeat was sent. */
  beaten(): void;
  /** Reports whether so much is unsent that producers should wait. */
  isCongested(): boolean;
  /** Resolves when the congestion is over; rejects when the session ends. */
  drained(): Promise<void>;
}

/** The node's side of the handshake; the session holds no key. */
export interface HandshakeParty {
  target(): Promise<TransportRequest>;
  /** Signs the node's proof for a challenge. `n` is on disk before this resolves. */
  prove(nonce: string, cnonce: string, tlsKey: string | undefined): Promise<string>;
  /** Verifies the answer; may fetch newer keys over the attempt first. */
  verify(
    proof: string,
    cnonce: string,
    tlsKey: string | undefined,
    attempt: { readonly rpc: ControlPlaneRpc; readonly signal: AbortSignal },
  ): Promise<ServerProofClaims>;
  reportedVersion(): number;
  /** Reports whether a `session.deleted` statement is genuine and answers this attempt; rejects if it is not. */
  isDeletion(jws: string, cnonce: string): Promise<boolean>;
  /** Remembers an address that worked. */
  reached(address: string): void;
}

export interface AttemptOptions {
  readonly clock: Clock;
  /** Shared by all attempts, since each may repeat the mistakes of another. */
  readonly mistakes: Pick<AggregatedLog, "warn">;
  /** Shared by all attempts. */
  readonly answers: AnswerWatch;
  readonly open: OpenTransport;
  readonly party: HandshakeParty;
  readonly handlers: (connection: Connection) => Handlers<ControlMethods>;
}

const CONGESTED_BYTES = 256 * 1024;
/** Limit of what may arrive between the answer to hello and the verdict on its proof. */
const EARLY_MAX_BYTES = 2 * SESSION_LIMITS.maxBytes;
const EARLY_MAX_MESSAGES = 256;
/** Statements of deletion that are verified in one attempt. */
const MAX_DELETIONS = 8;
const HEARTBEAT_BOUNDS_S = { min: 10, max: 300 };

export interface AttemptListener {
  onHeard(): void;
  onOpened(connection: Connection): void;
  onEnded(ending: Ending, error: AgentError): void;
}

/** One attempt and the session that it becomes. */
export class Attempt {
  readonly #options: AttemptOptions;
  readonly #listener: AttemptListener;
  readonly #over = new AbortController();
  readonly #cnonce = randomBytes(32).toString("base64url");
  readonly rpc: ControlPlaneRpc;
  #transport: Transport | undefined;
  #connection: Connection | undefined;
  #handlers: Handlers<ControlMethods> = {};
  #deletion: Promise<boolean> = Promise.resolve(false);
  #deletions = 0;
  #proof: Promise<boolean> = Promise.resolve(false);
  #pins: readonly string[] = [];
  #isAnswered = false;
  #early: Message[] = [];
  #earlyBytes = 0;
  #pingedAt: number | undefined;
  /** The newest heartbeat, and the newest before the unanswered ping. */
  #beatAt: number | undefined;
  #beatBeforePing: number | undefined;
  #opening: Promise<void> = Promise.resolve();
  #isChallenged = false;
  rttMs: number | undefined;
  /** Monotonic time of the newest heartbeat that the control plane has received: it answered a later ping. */
  heartbeatAt: number | undefined;

  constructor(options: AttemptOptions, listener: AttemptListener) {
    this.#options = options;
    this.#listener = listener;
    this.rpc = new RpcPeer({
      local: controlMethods,
      remote: nodeMethods,
      handlers: this.#guardedHandlers(),
      send: (text) => this.#transport?.send(text),
      onOutcome: (method, outcome) => this.#outcome(method, outcome),
      onFault: (method, error) =>
        options.mistakes.warn(faultKind(method, error), { method, err: error }, "call failed"),
    });
  }

  get connection(): Connection | undefined {
    return this.#connection;
  }

  get address(): string | undefined {
    return this.#transport?.address;
  }

  run(): Promise<void> {
    this.#opening = this.#open();
    return this.#opening;
  }

  async #open(): Promise<void> {
    const { clock, party, open } = this.#options;
    try {
      const target = await party.target();
      this.#pins = target.pins;
      const transport = await open(
        target,
        {
          onHeard: () => this.#listener.onHeard(),
          onMessage: (frame) => this.#receive(frame),
          onPong: () => {
            if (this.#pingedAt !== undefined) this.rttMs = Math.round((clock.elapsed() - this.#pingedAt) * 10) / 10;
            this.#pingedAt = undefined;
            this.heartbeatAt = this.#beatBeforePing;
          },
          onEnd: (end) => this.#ended(end),
        },
        this.#over.signal,
      );
      if (this.#over.signal.aborted) transport.terminate();
      this.#transport = transport;
      if (transport.address !== undefined) party.reached(transport.address);
    } catch (error) {
      this.#fail(toError(error));
    }
  }

  ping(): void {
    if (this.#pingedAt === undefined) this.#beatBeforePing = this.#beatAt;
    this.#pingedAt ??= this.#options.clock.elapsed();
    this.#transport?.ping();
  }

  /** Counts requests of the session only; the handshake has its own limits. */
  #outcome(method: string, outcome: Outcome): void {
    const { answers, clock } = this.#options;
    if (this.#connection === undefined || !answers.note(method, outcome, clock.elapsed())) return;
    const [worst] = answers.failing(clock.elapsed());
    const text = worst === undefined ? "nothing is answered" : unansweredText(worst);
    this.#fail(new SessionError("unanswered", `${text}, and nothing else was answered either`));
  }

  /** Notes a heartbeat. The first one is confirmed by a ping at once, since the judgement of an upgrade waits for it. */
  #beaten(): void {
    this.#beatAt = this.#options.clock.elapsed();
    if (this.heartbeatAt === undefined) this.ping();
  }

  /** Ends the attempt from this side. */
  end(reason: SessionError): void {
    this.#over.abort(reason);
    this.rpc.close(reason);
    if (reason.code === "shutdown") this.#transport?.close(1001, "shutting down");
    else this.#transport?.terminate();
  }

  #receive(frame: string): void {
    if (this.#over.signal.aborted) return;
    let message: Message;
    try {
      message = parseMessage(frame, this.#isAnswered ? SESSION_LIMITS : HANDSHAKE_LIMITS);
    } catch (error) {
      const err = toError(error);
      this.#options.mistakes.warn(`message ${codeOf(err)}`, { err }, "unreadable message ignored");
      const answer = refuseEnvelope(error);
      // An unauthenticated peer gets no answer that it can request without limit.
      if (answer !== undefined && this.#connection !== undefined) this.#transport?.send(answer);
      return;
    }
    if (this.#connection === undefined && this.#isEarly(message)) this.#holdBack(message, frame.length);
    else void this.rpc.receive(message);
  }

  /** Reports whether a message must wait for the verdict: for the control plane the session begins with its answer to hello. */
  #isEarly(message: Message): boolean {
    if (message.kind === "success" && this.rpc.unanswered(message.id) === "session.hello") {
      this.#isAnswered = true;
      this.#transport?.widen();
    }
    if (message.kind === "success" || message.kind === "failure") return false;
    return this.#isAnswered && message.method !== "session.deleted";
  }

  #holdBack(message: Message, bytes: number): void {
    this.#early.push(message);
    this.#earlyBytes += bytes;
    if (this.#earlyBytes > EARLY_MAX_BYTES || this.#early.length > EARLY_MAX_MESSAGES) {
      this.#early = [];
      this.#fail(new SessionError("not-authentic", "too much came before the control plane had proved itself"));
    }
  }

  /** Handles only the challenge and a verifiable deletion until the control plane has proved itself. */
  #guardedHandlers(): Handlers<ControlMethods> {
    const opened = <P, R>(pick: () => ((params: P) => R) | undefined) => {
      return (params: P): R => {
        const handler = this.#connection === undefined ? undefined : pick();
        if (handler === undefined) throw new SessionError("not-authentic", "called before the handshake was over");
        return handler(params);
      };
    };
    return {
      "session.challenge": async ({ nonce }) => {
        // Each proof costs a signature and a counter on disk, and a second answer would open a second session.
        if (this.#isChallenged) return;
        this.#isChallenged = true;
        try {
          // The challenge may arrive before `open` has returned, and the proof needs the TLS key it brings.
          await this.#opening;
          await this.#answerChallenge(nonce);
        } catch (error) {
          this.#fail(toError(error));
        }
      },
      "session.deleted": ({ jws }) => {
        // Each costs a verification and a report, and an attacker on the path can send them.
        if (this.#deletions >= MAX_DELETIONS) return;
        this.#deletions += 1;
        const before = this.#deletion;
        const isDeletion = this.#options.party.isDeletion(jws, this.#cnonce).catch(() => false);
        this.#deletion = isDeletion.then(async (isGenuine) => (await before) || isGenuine);
      },
      "document.changed": opened(() => this.#handlers["document.changed"]),
      "trigger.run": opened(() => this.#handlers["trigger.run"]),
      "trigger.cancel": opened(() => this.#handlers["trigger.cancel"]),
      "trigger.input": opened(() => this.#handlers["trigger.input"]),
      "stream.open": opened(() => this.#handlers["stream.open"]),
    };
  }

  async #answerChallenge(nonce: string): Promise<void> {
    if (this.#connection !== undefined || this.#over.signal.aborted) return;
    const { party, clock } = this.#options;
    const tlsKey = this.#transport?.tlsKey;
    const proof = await party.prove(nonce, this.#cnonce, tlsKey);
    const sentAt = clock.elapsed();
    const hello = { proof, reportedVersion: party.reportedVersion() };
    const answer = await this.rpc.request("session.hello", hello, this.#over.signal).catch((error: unknown) => {
      throw error instanceof RemoteError ? judgeRefusal(error, tlsKey, this.#pins) : error;
    });
    const heardAt = clock.elapsed();
    const provenAt = clock.sinceBoot();
    const verifying = party.verify(answer.proof, this.#cnonce, tlsKey, {
      rpc: this.rpc,
      signal: this.#over.signal,
    });
    this.#proof = verifying.then(
      () => true,
      () => false,
    );
    const verified = await verifying;
    if (this.#over.signal.aborted) return;
    this.rttMs = Math.round((heardAt - sentAt) * 10) / 10;
    const { min, max } = HEARTBEAT_BOUNDS_S;
    const connection: Connection = {
      sid: verified.sid,
      rpc: this.rpc,
      proof: verified,
      heartbeatMs: Math.min(max, Math.max(min, answer.heartbeatSeconds)) * 1000,
      reportedVersion: answer.reportedVersion,
      signal: this.#over.signal,
      sessionNow: () => verified.iat + (clock.sinceBoot() - provenAt) / 1000,
      rttMs: () => this.rttMs,
      beaten: () => this.#beaten(),
      isCongested: () => (this.#transport?.buffered() ?? 0) > CONGESTED_BYTES,
      drained: () => this.#drained(),
    };
    this.#handlers = this.#options.handlers(connection);
    this.#connection = connection;
    this.#transport?.trust();
    this.#options.answers.begin();
    this.#listener.onOpened(connection);
    for (const message of this.#early.splice(0)) void this.rpc.receive(message);
  }

  async #drained(): Promise<void> {
    while ((this.#transport?.buffered() ?? 0) > CONGESTED_BYTES) {
      await this.#options.clock.sleep(50, this.#over.signal);
    }
    this.#over.signal.throwIfAborted();
  }

  #ended(end: TransportEnd): void {
    if (this.#over.signal.aborted) return;
    const lost = new SessionError("connection-lost", end.reason);
    this.#over.abort(lost);
    this.rpc.close(lost);
    // A deletion or a proof that arrived before the close code is judged first.
    void Promise.all([this.#deletion, this.#proof]).then(([isDeleted, isProven]) => {
      const { ending, error } = judgeEnd(end, { isDeleted, isProven });
      this.#listener.onEnded(ending, error);
    });
  }

  #fail(error: Error): void {
    if (this.#over.signal.aborted) return;
    const known = error instanceof AgentError ? error : new SessionError("failed", error.message, { cause: error });
    const status = known.details?.["status"];
    const retryAfterMs = known.details?.["retryAfterMs"];
    const isAsked = (status === 429 || status === 503) && typeof retryAfterMs === "number";
    this.#over.abort(known);
    this.rpc.close(known);
    this.#transport?.terminate();
    const isDistrust = known.code === "not-authentic" || known.code === "tls-intercepted";
    const ending: Ending = isAsked
      ? { kind: "asked-to-wait", delayMs: retryAfterMs }
      : { kind: isDistrust ? "not-authentic" : "failed" };
    this.#listener.onEnded(ending, known);
  }
}

/** Returns the key by which faults are aggregated in the log: the method, if it is known, and the code. */
function faultKind(method: string, error: Error): string {
  return `call ${Object.hasOwn(controlMethods, method) ? method : "unknown"} ${codeOf(error)}`;
}

function codeOf(error: Error): string {
  return error instanceof AgentError ? error.code : "internal";
}
