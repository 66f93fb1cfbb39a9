import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import { AgentError, InputError, SessionError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { Background } from "../../lib/async/background.ts";
import { signJws } from "../../protocol/channel/jws.ts";
import { RemoteError } from "../../protocol/channel/rpc.ts";
import type { TriggerFailure } from "../../protocol/channel/methods.ts";
import type { ControlKeys } from "./keys/control-keys.ts";
import type { TriggerStore } from "../triggers/store.ts";
import type { NodeStore } from "../nodes/store.ts";
import { heldIdentity, isHeld, refuseTriggerFrom } from "../nodes/held-identity.ts";
import { offline, type NodeSession } from "./session.ts";
import type { Sessions } from "./sessions.ts";
import type { TriggerProgress, TriggerRequest } from "../triggers/records.ts";
import type { TriggerOptions } from "../triggers/service.ts";
import { whileUnavailable } from "../store/transact.ts";

export interface TriggersDeps {
  readonly store: {
    readonly triggers: Pick<TriggerStore, "add" | "nodeOf" | "settle">;
    readonly nodes: Pick<NodeStore, "credentials">;
  };
  readonly sessions: Pick<Sessions, "get">;
  readonly keys: ControlKeys;
  readonly clock: Clock;
  readonly origin: string;
  readonly log: Logger;
}

/** Time added to a trigger's deadline before the control plane stops waiting, in milliseconds, and before its signature expires. */
const GUARD_MS = 5000;
const EXPIRY_SECONDS = 60;
/** Limit in the schema of `trigger.run`, which keeps a message below its own. */
const MAX_JWS_CHARS = 1_000_000;
const CODE = /^[a-z0-9-]{1,64}$/;
const MAX_RUNNING = 20_000;
const MAX_RUNNING_PER_NODE = 64;

interface Run {
  readonly id: string;
  readonly uid: string;
  readonly request: TriggerRequest;
  readonly stop: AbortController;
  readonly onProgress: ((progress: TriggerProgress) => void) | undefined;
  readonly onOutcome: ((outcome: string) => Promise<void>) | undefined;
  lastSeq: number;
  /** Set once its row is stored; before, it is not sent. */
  isStored: boolean;
  /** Latest session it was sent in. */
  sentIn: NodeSession | undefined;
  /** `ok` or an error code, once settled. */
  outcome: string | undefined;
  readonly answer: Promise<unknown>;
  settle(outcome: { readonly result: unknown } | { readonly error: Error }): void;
}

/** Triggers in flight: each is sent to one node, answered once, and resent under its id when the session breaks. */
export class Triggers {
  readonly #deps: TriggersDeps;
  readonly #runs = new Map<string, Run>();
  /** Outcomes that are being stored. */
  readonly #recording: Background;
  #isClosed = false;

  constructor(deps: TriggersDeps) {
    this.#deps = deps;
    const onFailure = (err: Error): void => deps.log.error({ err }, "cannot store trigger outcome");
    this.#recording = new Background({ limit: MAX_RUNNING, onFailure, repeat: whileUnavailable(deps.clock) });
  }

  /** Sends a trigger; see `TriggerService.run`. */
  async run(
    uid: string,
    request: TriggerRequest,
    { signal, onProgress, onSent, onOutcome }: TriggerOptions,
  ): Promise<unknown> {
    signal.throwIfAborted();
    const { sessions, store, clock } = this.#deps;
    const session = sessions.get(uid);
    if (session === undefined || this.#isClosed) throw offline(uid);
    this.#checkLimits(uid, session);
    const run = this.#start({ id: randomUUID(), uid, request, onProgress, onOutcome }, signal);
    try {
      const { event, user } = request;
      await store.triggers.add({ id: run.id, node: uid, event, user }, clock.now() / 1000);
    } catch (error) {
      run.settle({ error: toError(error) });
      return run.answer;
    }
    run.isStored = true;
    onSent?.(run.id);
    // It may have been settled while it was stored.
    if (run.outcome !== undefined) this.#record(run.id, run.outcome, run.onOutcome);
    const current = sessions.get(uid);
    if (current === session) await this.#send(run, session);
    else if (current !== undefined && request.wait) await this.#resend([run], current);
    if (request.wait) return run.answer;
    if (run.sentIn === undefined) run.settle({ error: offline(uid) });
    // The caller gets the error of a trigger that was not sent. Without wait, sending is all.
    return this.#runs.has(run.id) ? true : run.answer;
  }

  /** Accepts output of a running trigger; ignores any other. */
  progress(uid: string, id: string, progress: TriggerProgress): void {
    const run = this.#runs.get(id);
    if (run === undefined || run.uid !== uid || progress.seq <= run.lastSeq) return;
    run.lastSeq = progress.seq;
    run.onProgress?.(progress);
  }

  /** Accepts a result that did not fit the reply. @throws {InputError} `not-found` for an id not sent to this node */
  async result(
    uid: string,
    result: { readonly id: string } & ({ readonly error: TriggerFailure } | { readonly body?: unknown }),
  ): Promise<void> {
    const { triggers } = this.#deps.store;
    if ((await triggers.nodeOf(result.id)) !== uid) {
      throw new InputError("not-found", `no trigger ${result.id} was sent to this node`);
    }
    const outcome =
      "error" in result
        ? { error: new RemoteError(result.error.code, result.error.message, detailsOf(result.error.details)) }
        : { result: result.body };
    const run = this.#runs.get(result.id);
    if (run === undefined) await triggers.settle(result.id, "error" in outcome ? codeOf(outcome.error) : "ok");
    else run.settle(outcome);
  }

  /** Resends waiting triggers of a node that reconnected; fails them if its identity is held. */
  async sessionOpened(session: NodeSession): Promise<void> {
    const { uid } = session;
    const runs = [...this.#runs.values()].filter((run) => run.uid === uid && run.isStored && run.sentIn !== session);
    if (runs.length === 0) return;
    try {
      await this.#resend(runs, session);
    } catch (error) {
      // They end at their time limits.
      this.#deps.log.error({ node: uid, err: toError(error) }, "cannot resend triggers");
    }
  }

  async #resend(runs: readonly Run[], session: NodeSession): Promise<void> {
    const { store } = this.#deps;
    const isRefused = await isHeld(store, session.uid);
    for (const run of runs) {
      if (isRefused) run.settle({ error: heldIdentity(run.uid) });
      else if (run.request.wait) await this.#resendOne(run, session);
    }
  }

  async #resendOne(run: Run, session: NodeSession): Promise<void> {
    try {
      await refuseTriggerFrom(this.#deps.store, run.uid, session.address, run.request.event);
    } catch (error) {
      run.settle({ error: toError(error) });
      return;
    }
    await this.#send(run, session);
  }

  /** Fails all triggers of a node, as when it is deleted. */
  nodeRemoved(uid: string): void {
    for (const run of this.#runs.values()) if (run.uid === uid) run.settle({ error: offline(uid) });
  }

  /** Fails all triggers and waits until the outcomes are stored. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const run of this.#runs.values()) {
      run.settle({ error: new InputError("interrupted", "the controller is shutting down") });
    }
    await this.#recording.settled();
  }

  /** Adds a run with its timeout; settling it releases both. */
  #start(plan: Pick<Run, "id" | "uid" | "request" | "onProgress" | "onOutcome">, signal: AbortSignal): Run {
    const { event, wait, deadlineMs } = plan.request;
    let [resolve, reject] = [(_result: unknown): void => undefined, (_error: Error): void => undefined];
    const answer = new Promise<unknown>((...settlers) => {
      [resolve, reject] = settlers;
    });
    // It may settle before anything awaits it: while it is signed, or without wait.
    answer.catch(() => undefined);
    const onAbort = (): void => {
      const reason: unknown = signal.reason;
      const cancelled = new InputError("cancelled", `${event} was cancelled`);
      this.#giveUp(run, reason instanceof AgentError ? reason : cancelled);
    };
    const cancelGuard = this.#deps.clock.after(deadlineMs + GUARD_MS, () =>
      this.#giveUp(run, new InputError("timeout", `${event}: no answer within ${deadlineMs} ms`)),
    );
    const run: Run = {
      ...plan,
      stop: new AbortController(),
      lastSeq: -1,
      isStored: false,
      sentIn: undefined,
      outcome: undefined,
      answer,
      settle: (outcome) => {
        if (!this.#runs.delete(plan.id)) return;
        cancelGuard();
        signal.removeEventListener("abort", onAbort);
        run.outcome = "error" in outcome ? codeOf(outcome.error) : "ok";
        if (run.isStored) this.#record(run.id, run.outcome, run.onOutcome);
        if ("error" in outcome) reject(outcome.error);
        else resolve(outcome.result);
      },
    };
    this.#runs.set(plan.id, run);
    if (wait) signal.addEventListener("abort", onAbort, { once: true });
    return run;
  }

  #checkLimits(uid: string, session: NodeSession): void {
    if (session.isCongested) throw new InputError("busy", `node ${uid} is not reading: too much data is unsent`);
    let ofNode = 0;
    for (const run of this.#runs.values()) if (run.uid === uid) ofNode += 1;
    if (ofNode >= MAX_RUNNING_PER_NODE)
      throw new InputError("busy", `node ${uid} has ${ofNode} unanswered triggers, the limit`);
    if (this.#runs.size >= MAX_RUNNING)
      throw new InputError("busy", `the limit of ${MAX_RUNNING} unanswered triggers is reached`);
  }

  /** Signs and sends, unless the session closed before. The reply settles the run. */
  async #send(run: Run, session: NodeSession): Promise<void> {
    const { keys, origin, sessions } = this.#deps;
    const { event, body, user, deadlineMs } = run.request;
    // A node streams output only to a request without wait; the result then follows as a message of its own.
    const isWatched = run.onProgress !== undefined;
    const wait = run.request.wait && !isWatched;
    const iat = session.now();
    const exp = iat + Math.ceil(deadlineMs / 1000) + EXPIRY_SECONDS;
    const claims = {
      iss: origin,
      aud: run.uid,
      sid: session.sid,
      jti: run.id,
      event,
      body,
      wait,
      ...(isWatched ? { watched: true } : {}),
      user,
      deadlineMs,
      iat,
      exp,
    };
    const jws = await signJws("holdfast-trigger+jwt", claims, keys.signing);
    if (jws.length > MAX_JWS_CHARS) {
      run.settle({ error: new InputError("invalid-body", "body: too large for one message") });
      return;
    }
    // While it was signed, it may have ended, or been sent for the session's opening.
    if (!this.#runs.has(run.id) || sessions.get(run.uid) !== session || run.sentIn === session) return;
    run.sentIn = session;
    session.peer.request("trigger.run", { jws }, run.stop.signal).then(
      (result) => {
        if (!isWatched) run.settle({ result });
      },
      (error: unknown) => {
        const reason = toError(error);
        // A broken session does not decide a trigger: it is resent if a caller waits, otherwise dropped.
        if (reason instanceof RemoteError) run.settle({ error: reason });
        else if (isOutOfRoom(reason)) run.settle({ error: new InputError("busy", reason.message) });
        else if (isInvalid(reason)) run.settle({ error: new InputError("internal", reason.message) });
        else if (!run.request.wait) run.settle({ error: offline(run.uid) });
      },
    );
  }

  /** Records an outcome; a failure does not affect the caller's answer. */
  #record(id: string, outcome: string, then?: Run["onOutcome"]): void {
    const isRecording = this.#recording.run(async () => {
      await this.#deps.store.triggers.settle(id, outcome);
      await then?.(outcome);
    });
    if (!isRecording) this.#deps.log.error({ trigger: id }, "cannot store trigger outcome: too many are being stored");
  }

  #giveUp(run: Run, error: AgentError): void {
    this.#deps.sessions.get(run.uid)?.peer.notify("trigger.cancel", { id: run.id });
    run.settle({ error });
    run.stop.abort(error);
  }
}

function isOutOfRoom(error: Error): boolean {
  return error instanceof SessionError && error.code === "busy";
}

function isInvalid(error: Error): boolean {
  return error instanceof SessionError && error.code === "invalid-result";
}

function detailsOf(details: Readonly<Record<string, unknown>> | undefined): {
  details?: Readonly<Record<string, unknown>>;
} {
  return details === undefined ? {} : { details };
}

/** Returns the code of an error; `internal` for one without, and for a node's text that is no code. */
function codeOf(error: Error): string {
  return error instanceof AgentError && CODE.test(error.code) ? error.code : "internal";
}
