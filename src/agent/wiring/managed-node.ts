import { isDeepStrictEqual } from "node:util";
import type { Logger } from "pino";
import { AgentError, InputError, SessionError, toError } from "../../errors.ts";
import { AggregatedLog } from "../../host/aggregated-log.ts";
import { wallTimes, type Clock, type WallTimes } from "../../host/clock.ts";
import type { HttpClient } from "../../host/net/http-client.ts";
import type { DocumentApplied } from "../../protocol/channel/methods.ts";
import type { ShadowMap } from "../../protocol/values/shadow.ts";
import { isTransient, type Handlers } from "../../protocol/channel/rpc.ts";
import type { ControlMethods } from "../../protocol/channel/methods.ts";
import { verifyJws } from "../../protocol/channel/jws.ts";
import { keySetOf } from "../../protocol/channel/keys-chain.ts";
import type { Registration } from "../identity/identity.ts";
import type { Applying } from "../applying/applying.ts";
import type { AppliedReports } from "../shadow/applied.ts";
import type { DesiredDocuments, Trust } from "../shadow/desired.ts";
import { DocumentSync } from "../shadow/document-sync.ts";
import type { ShadowReporting } from "../shadow/reporting.ts";
import type { Connection } from "../session/attempt.ts";
import type { Fault } from "../faults/fault.ts";
import { judgeStream } from "../streams/judge.ts";
import type { Streams } from "../streams/streams.ts";
import type { Beating } from "../telemetry/beating.ts";
import type { EventLog } from "../telemetry/events.ts";
import type { Pusher } from "../telemetry/pusher.ts";
import type { Dispatcher } from "../triggers/execution/dispatch.ts";
import { bodyOf } from "../triggers/execution/failure.ts";
import { judgeTrigger } from "../triggers/execution/judge.ts";
import type { TriggerChannel, TriggerReply } from "../triggers/execution/trigger.ts";
import { ANSWER_MS, withinTime } from "../../lib/async/within-time.ts";

type DocumentKind = DocumentApplied["name"];

interface Refusal {
  readonly report: DocumentApplied;
  readonly message: string;
  /** Its time by the monotonic clock. */
  readonly at: number;
}

export interface ManagedNodeOptions {
  readonly clock: Clock;
  readonly random: () => number;
  readonly log: Logger;
  readonly http: HttpClient;
  readonly registration: Registration;
  /** Addresses of the control plane's sessions that worked. */
  readonly knownAddresses: () => readonly string[];
  readonly saveRegistration: (registration: Registration) => Promise<void>;
  readonly documents: DesiredDocuments;
  readonly applying: Applying;
  readonly reporting: ShadowReporting;
  readonly pusher: Pusher;
  readonly beating: Beating;
  readonly dispatcher: Dispatcher;
  readonly streams: Pick<Streams, "obey">;
  readonly events: EventLog;
  /** Something that the shadow shows has changed. */
  readonly onChanged: () => void;
}

/** A registered node's duties towards its control plane: documents in, reports out, triggers answered. */
export class ManagedNode {
  readonly #options: ManagedNodeOptions;
  readonly #applied = new Map<DocumentKind, DocumentApplied>();
  /** Their times by the monotonic clock. */
  readonly #appliedAt = new Map<DocumentKind, number>();
  readonly #wall: WallTimes;
  /** Newer documents that were refused; what is in force stays in `#applied`. */
  readonly #refusals = new Map<DocumentKind, Refusal>();
  readonly #unsent = new Set<DocumentKind>();
  readonly sync: DocumentSync;
  #registration: Registration;
  #connection: Connection | undefined;
  #refusedSignatures = 0;
  /** How often in a row a report was not taken. */
  #resends = 0;
  #cancelResend = (): void => undefined;
  #verifying = 0;
  /** Triggers taken back while some were being verified, of which the dispatcher knows nothing yet. */
  readonly #takenBack = new Set<string>();
  #startedAt = 0;
  readonly #refusedTriggers: AggregatedLog;

  constructor(options: ManagedNodeOptions) {
    this.#options = options;
    this.#wall = wallTimes(options.clock);
    this.#refusedTriggers = new AggregatedLog(options.log.child({ component: "triggers" }), options.clock);
    this.#registration = options.registration;
    this.sync = new DocumentSync({
      clock: options.clock,
      random: options.random,
      log: options.log.child({ component: "documents" }),
      http: options.http,
      documents: options.documents,
      registration: () => this.#registration,
      knownAddresses: options.knownAddresses,
      saveRegistration: async (registration) => {
        await options.saveRegistration(registration);
        this.#registration = registration;
      },
      trust: () => this.#trust(),
      onAccepted: (name) => this.#accepted(name),
      onRefused: (name, version, error) => this.#refused(name, version, error),
      onHealth: (isHealthy, why) => this.#fetchHealth(isHealthy, why),
      onOverdue: () => options.onChanged(),
    });
    options.applying.onSettled(() => this.#settled());
    this.apply();
  }

  get registration(): Registration {
    return this.#registration;
  }

  get applied(): AppliedReports {
    return new Map(
      [...this.#applied].map(([name, report]) => {
        const at = this.#appliedAt.get(name);
        return [name, at === undefined ? report : Object.assign({}, report, { at: this.#wall.of(at) })];
      }),
    );
  }

  /** The faults of the configuration that was last received or could not be fetched. */
  get faults(): readonly Fault[] {
    const overdue = this.sync.overdue.map(({ name, since, cause }) => ({
      code: "document-unavailable",
      message: `the ${name} document cannot be had, and the one before stays in force: ${cause}`.slice(0, 1024),
      since,
    }));
    const refused = [...this.#refusals.values()].map(({ report, message, at }) => ({
      code: "document-refused",
      message: `the ${report.name} document ${report.version} was refused, and the one before stays in force: ${message}`,
      since: this.#wall.of(at),
    }));
    return [...overdue, ...refused];
  }

  /** The shadow keys about documents that could not be fetched. */
  get documentFacts(): ShadowMap {
    const facts: ShadowMap = {};
    for (const { name, since, cause } of this.sync.overdue) {
      facts[`document.${name}.unavailable`] = cause.slice(0, 512);
      facts[`document.${name}.unavailable.since`] = Math.floor(since / 1000);
    }
    return facts;
  }

  get refusedSignatures(): number {
    return this.#refusedSignatures;
  }

  /** Puts the documents in force to work: at start from disk, and whenever one has changed. */
  apply(): void {
    this.#startedAt = this.#options.clock.elapsed();
    this.#options.applying.apply();
    this.#settled();
  }

  /** Reports what became of the documents in force, as far as it was not said before. */
  #settled(): void {
    const { applying, clock, documents, onChanged } = this.#options;
    const verdicts = applying.verdicts();
    if (verdicts === undefined) return;
    let hasChanged = false;
    for (const [name, verdict] of Object.entries(verdicts)) {
      const kind = name as keyof typeof verdicts;
      const version = kind === "keys" ? this.#registration.controlPlane.keys.version : documents.newest(kind);
      const last = this.#applied.get(kind);
      const isSaid = last?.version === version && isDeepStrictEqual({ ...last, ...verdict }, last);
      if (isSaid) continue;
      hasChanged = true;
      const durationMs = Math.round(clock.elapsed() - this.#startedAt);
      this.#report(kind, { name: kind, version, at: clock.now(), durationMs, ...verdict });
    }
    if (!hasChanged) return;
    onChanged();
    void this.#sendApplied();
  }

  /** What the control plane may call in this session. */
  handlers(connection: Connection): Handlers<ControlMethods> {
    const channel = triggerChannel(connection);
    return {
      "document.changed": ({ name, version }) => this.sync.changed(name, version),
      "trigger.run": async ({ jws }) => this.#runTrigger(jws, connection, channel),
      "trigger.cancel": ({ id }) => {
        if (this.#verifying > 0 && this.#takenBack.size < MAX_TAKEN_BACK) this.#takenBack.add(id);
        this.#options.dispatcher.cancel(id);
      },
      "trigger.input": () => {
        throw new InputError("not-supported", "no event of this version takes input");
      },
      "stream.open": (order) => this.#openStream(order, connection),
    };
  }

  /** A short-lived credential for one repository of the platform's registry. @throws {SessionError} `offline`; as the control plane answers. */
  async registryToken(
    repository: string,
    signal: AbortSignal,
  ): Promise<{ readonly username: string; readonly password: string }> {
    const connection = this.#connection;
    if (connection === undefined) throw new SessionError("offline", "no session with the control plane");
    const both = AbortSignal.any([signal, connection.signal]);
    return connection.rpc.request("registry.token", { repository }, withinTime(both, ANSWER_MS));
  }

  /** The key of an encrypted volume of this node; rejects at once without a session. */
  async volumeKey(volume: string, signal: AbortSignal): Promise<string> {
    const connection = this.#connection;
    if (connection === undefined) throw new SessionError("offline", "no session with the control plane");
    const both = AbortSignal.any([signal, connection.signal]);
    return (await connection.rpc.request("volume.key", { volume }, withinTime(both, ANSWER_MS))).key;
  }

  /** The control plane said that it deleted this node, or has it again: the data plane and the containers go and come with it. */
  setDeleted(isDeleted: boolean): void {
    const { documents, clock, log, onChanged } = this.#options;
    const isKnown = (documents.deletedAt !== undefined) === isDeleted;
    if (isKnown && !isDeleted) return;
    documents.setDeleted(isDeleted ? clock.now() : undefined).catch((error: unknown) => {
      log.warn(
        { err: toError(error) },
        "the deletion is not saved; it is tried again when the control plane repeats it",
      );
    });
    if (isKnown) return;
    if (isDeleted) log.error("the control plane deleted this node; its data plane and containers stop");
    else log.info("the control plane has this node again");
    this.apply();
    onChanged();
  }

  online(connection: Connection): void {
    this.#connection = connection;
    this.setDeleted(false);
    const { reporting, pusher, beating, dispatcher } = this.#options;
    reporting.online(connection);
    this.sync.online(connection);
    beating.online(connection);
    dispatcher.attach(triggerChannel(connection));
    // The control plane may have been restored from before the last report, so each session hears all of them once.
    for (const name of [...this.#applied.keys(), ...this.#refusals.keys()]) this.#unsent.add(name);
    void this.#sendApplied();
    pusher.online(connection);
  }

  offline(): void {
    this.#connection = undefined;
    this.#cancelResend();
    this.#resends = 0;
    const { reporting, pusher, beating } = this.#options;
    reporting.offline();
    this.sync.offline();
    beating.offline();
    pusher.offline();
  }

  async #trust(): Promise<Trust> {
    const { node, controlPlane } = this.#registration;
    return { iss: controlPlane.iss, uid: node.uid, keys: await keySetOf(controlPlane.keys.signing) };
  }

  async #runTrigger(jws: string, connection: Connection, channel: TriggerChannel): Promise<unknown> {
    try {
      return bodyOf(await this.#startTrigger(jws, connection, channel));
    } catch (error) {
      if (isForgery(error)) this.noteForgery("a trigger", error);
      throw error;
    }
  }

  async #startTrigger(jws: string, connection: Connection, channel: TriggerChannel): Promise<TriggerReply> {
    const sessionNow = connection.sessionNow() * 1000;
    let reply: Promise<TriggerReply>;
    let event: string | undefined;
    this.#verifying += 1;
    try {
      const { iss, uid, keys } = await this.#trust();
      const claims = await verifyJws("holdfast-trigger+jwt", jws, keys);
      ({ event } = claims);
      const refusal = judgeTrigger(claims, { iss, uid, sid: connection.sid, sessionNow });
      if (refusal !== undefined) throw refusal;
      if (this.#takenBack.has(claims.jti)) throw new InputError("cancelled", "it was cancelled");
      // Not awaited here: from this tick on the dispatcher knows the trigger, and cancels it itself.
      reply = this.#options.dispatcher.run(claims, channel, sessionNow);
    } catch (error) {
      this.#logRefusedTrigger(event, toError(error));
      throw error;
    } finally {
      this.#verifying -= 1;
      if (this.#verifying === 0) this.#takenBack.clear();
    }
    return reply;
  }

  /** Logs a trigger that was refused before the dispatcher saw it, with what a verified one says of itself. */
  #logRefusedTrigger(event: string | undefined, error: Error): void {
    const outcome = error instanceof AgentError ? error.code : "internal";
    const reason = error.message.slice(0, MAX_REASON);
    const known = event !== undefined && this.#options.dispatcher.events.includes(event) ? event : "unknown event";
    const named = event === undefined ? {} : { event };
    this.#refusedTriggers.warn(`${known}: ${outcome}`, { ...named, outcome, reason }, "trigger refused");
  }

  async #openStream(
    { jws, ticket }: { readonly jws: string; readonly ticket: string },
    connection: Connection,
  ): Promise<Record<string, never>> {
    const { sid, signal: session } = connection;
    try {
      const { iss, uid, keys } = await this.#trust();
      const claims = await verifyJws("holdfast-stream+jwt", jws, keys);
      const refusal = judgeStream(claims, { iss, uid, sid, ticket, sessionNow: connection.sessionNow() * 1000 });
      if (refusal !== undefined) throw refusal;
      const { node, controlPlane } = this.#registration;
      const knownAddresses = this.#options.knownAddresses();
      const target = { url: node.session, pins: controlPlane.keys.spki, knownAddresses, timeoutMs: DIAL_MS };
      await this.#options.streams.obey({ claims, ticket, target, session });
      return {};
    } catch (error) {
      if (isForgery(error)) this.noteForgery("a stream", error);
      throw error;
    }
  }

  #accepted(name: DocumentKind): void {
    const { events } = this.#options;
    events.clear({ eventType: "Invalid Configuration", object: name, message: `The ${name} document is valid` });
    this.#refusals.delete(name);
    if (name === "cluster" && this.#options.documents.current.cluster === undefined) this.#applied.delete("cluster");
    if (name === "keys") {
      const { version } = this.#registration.controlPlane.keys;
      const at = this.#options.clock.now();
      this.#report("keys", { name: "keys", version, at, durationMs: 0, outcome: "converged", sections: {} });
    } else {
      this.apply();
    }
    this.#options.onChanged();
    void this.#sendApplied();
  }

  #refused(name: DocumentKind, version: number, error: AgentError): void {
    const { events, log, clock } = this.#options;
    log.warn({ document: name, version, code: error.code, reason: error.message }, "document refused");
    if (isForgery(error)) this.noteForgery(`the ${name} document`, error);
    events.raise({
      eventType: "Invalid Configuration",
      object: name,
      level: "ERROR",
      message: `The ${name} document, version ${version}, was refused: ${error.message}`.slice(0, 1024),
      details: { document: name, version, code: error.code, ...error.details },
    });
    const report = { name, version, at: clock.now(), durationMs: 0, outcome: "refused", sections: {} } as const;
    this.#refusals.set(name, { report, message: error.message.slice(0, 1024), at: clock.elapsed() });
    this.#unsent.add(name);
    void this.#sendApplied();
  }

  #fetchHealth(isHealthy: boolean, why: string): void {
    const about = { eventType: "Configuration Update Failure", object: "documents" };
    if (isHealthy) {
      this.#options.events.clear({ ...about, message: "The most recent configuration was pulled" });
    } else {
      const message = `Unexpected error pulling the most recent configuration: ${why}`.slice(0, 1024);
      this.#options.events.raise({ ...about, level: "INFO", message });
    }
  }

  /** Counts and reports something that claimed to be the control plane's and is not. */
  noteForgery(what: string, error: AgentError): void {
    this.#refusedSignatures += 1;
    this.#options.events.notice({
      eventType: "Signature Refused",
      object: error.code,
      level: "WARNING",
      message: `Refused ${what}: ${error.message}`.slice(0, 1024),
      details: { code: error.code, refusedSoFar: this.#refusedSignatures },
    });
  }

  #report(name: DocumentKind, report: DocumentApplied): void {
    this.#applied.set(name, report);
    this.#appliedAt.set(name, this.#options.clock.elapsed());
    this.#unsent.add(name);
  }

  async #sendApplied(): Promise<void> {
    const connection = this.#connection;
    if (connection === undefined) return;
    this.#cancelResend();
    const again: DocumentKind[] = [];
    for (const name of this.#unsent) {
      const report = this.#refusals.get(name)?.report ?? this.#applied.get(name);
      this.#unsent.delete(name);
      if (report === undefined) continue;
      try {
        await connection.rpc.request("document.applied", report, withinTime(connection.signal, ANSWER_MS));
      } catch (error) {
        if (connection.signal.aborted) return;
        this.#options.log.warn({ document: name, reason: toError(error).message }, "report was not taken");
        if (isTransient(error)) again.push(name);
      }
    }
    if (again.length === 0) this.#resends = 0;
    else this.#resend(again);
  }

  #resend(names: readonly DocumentKind[]): void {
    for (const name of names) this.#unsent.add(name);
    const delay = Math.min(RESEND.capMs, RESEND.firstMs * 2 ** Math.min(this.#resends, 8));
    this.#resends += 1;
    this.#cancelResend();
    this.#cancelResend = this.#options.clock.after(delay, () => void this.#sendApplied());
  }
}

const DIAL_MS = 10_000;
const RESEND = { firstMs: 2000, capMs: 60_000 };
const MAX_TAKEN_BACK = 1024;
const MAX_REASON = 512;
const FORGERIES: ReadonlySet<string> = new Set(["bad-signature", "replayed", "below-floor", "invalid-claims"]);

function isForgery(error: unknown): error is AgentError {
  return error instanceof AgentError && FORGERIES.has(error.code);
}

function triggerChannel(connection: Connection): TriggerChannel {
  return {
    signal: connection.signal,
    progress: ({ id, seq, kind, data }) => connection.rpc.notify("trigger.progress", { id, seq, kind, data }),
    ready: () => (connection.isCongested() ? connection.drained() : Promise.resolve()),
    async result(id, reply) {
      await connection.rpc.request("trigger.result", { id, ...reply }, withinTime(connection.signal, ANSWER_MS));
    },
  };
}
