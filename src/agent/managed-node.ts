import { isDeepStrictEqual } from "node:util";
import type { Logger } from "pino";
import { InputError, toError, type AgentError } from "../errors.ts";
import type { Clock } from "../host/clock.ts";
import type { HttpClient } from "../host/http-client.ts";
import type { DocumentApplied } from "../protocol/methods.ts";
import type { Handlers } from "../protocol/rpc.ts";
import type { ControlMethods } from "../protocol/methods.ts";
import { verifyJws } from "../protocol/jws.ts";
import { keySetOf } from "../protocol/keys-chain.ts";
import type { Registration } from "./identity/identity.ts";
import type { Applying } from "./applying.ts";
import type { DesiredDocuments, Trust } from "./shadow/desired.ts";
import { DocumentSync } from "./shadow/document-sync.ts";
import type { ShadowReporting } from "./shadow/reporting.ts";
import type { Connection } from "./session/attempt.ts";
import type { Beating } from "./telemetry/beating.ts";
import type { EventLog } from "./telemetry/events.ts";
import type { Pusher } from "./telemetry/pusher.ts";
import type { Dispatcher } from "./triggers/dispatch.ts";
import { judgeTrigger } from "./triggers/judge.ts";
import type { TriggerChannel } from "./triggers/trigger.ts";
import { ANSWER_MS, withinTime } from "../lib/within-time.ts";

type DocumentKind = DocumentApplied["name"];

/** The document in force that says a section's last word, as the status shows it. */
export type AppliedReports = ReadonlyMap<DocumentKind, DocumentApplied>;

export interface ManagedNodeOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly http: HttpClient;
  readonly registration: Registration;
  readonly saveRegistration: (registration: Registration) => Promise<void>;
  readonly documents: DesiredDocuments;
  readonly applying: Applying;
  readonly reporting: ShadowReporting;
  readonly pusher: Pusher;
  readonly beating: Beating;
  readonly dispatcher: Dispatcher;
  readonly events: EventLog;
  /** Something that the shadow shows has changed. */
  readonly onChanged: () => void;
}

/** A registered node's duties towards its control plane: documents in, reports out, triggers answered. */
export class ManagedNode {
  readonly #options: ManagedNodeOptions;
  readonly #applied = new Map<DocumentKind, DocumentApplied>();
  readonly #unsent = new Set<DocumentKind>();
  readonly sync: DocumentSync;
  #registration: Registration;
  #connection: Connection | undefined;
  #refusedSignatures = 0;
  #startedAt = 0;

  constructor(options: ManagedNodeOptions) {
    this.#options = options;
    this.#registration = options.registration;
    this.sync = new DocumentSync({
      clock: options.clock,
      log: options.log.child({ component: "documents" }),
      http: options.http,
      documents: options.documents,
      registration: () => this.#registration,
      saveRegistration: async (registration) => {
        await options.saveRegistration(registration);
        this.#registration = registration;
      },
      trust: () => this.#trust(),
      onAccepted: (name) => this.#accepted(name),
      onRefused: (name, version, error) => this.#refused(name, version, error),
      onHealth: (isHealthy, why) => this.#fetchHealth(isHealthy, why),
    });
    options.applying.onSettled(() => this.#settled());
    this.apply();
  }

  get registration(): Registration {
    return this.#registration;
  }

  get applied(): AppliedReports {
    return this.#applied;
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
      const version = kind === "keys" ? this.#registration.controlPlane.keys.version : documents.version(kind);
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
      "document.changed": ({ name }) => this.sync.look([name]),
      "trigger.run": async ({ jws }) => this.#runTrigger(jws, connection, channel),
      "trigger.cancel": ({ id }) => this.#options.dispatcher.cancel(id),
      "trigger.input": () => {
        throw new InputError("not-supported", "no event of this version takes input");
      },
      "stream.open": () => {
        throw new InputError("not-supported", "this version opens no streams");
      },
    };
  }

  online(connection: Connection): void {
    this.#connection = connection;
    const { reporting, pusher, beating, dispatcher } = this.#options;
    reporting.online(connection);
    this.sync.online(connection);
    beating.online(connection);
    dispatcher.attach(triggerChannel(connection));
    // The control plane may have been restored from before the last report, so each session hears all of them once.
    for (const name of this.#applied.keys()) this.#unsent.add(name);
    void this.#sendApplied();
    pusher.online(connection);
  }

  offline(): void {
    this.#connection = undefined;
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
    const { iss, uid, keys } = await this.#trust();
    const sessionNow = connection.sessionNow() * 1000;
    try {
      const claims = await verifyJws("holdfast-trigger+jwt", jws, keys);
      const refusal = judgeTrigger(claims, { iss, uid, sid: connection.sid, sessionNow });
      if (refusal !== undefined) throw refusal;
      const reply = await this.#options.dispatcher.run(claims, channel, sessionNow);
      if ("body" in reply) return reply.body;
      const { code, message, details } = reply.error;
      throw new InputError(code, message, details === undefined ? {} : { details });
    } catch (error) {
      if (isForgery(error)) this.#noteForgery("a trigger", error);
      throw error;
    }
  }

  #accepted(name: DocumentKind): void {
    const { events } = this.#options;
    events.clear({ eventType: "Invalid Configuration", object: name, message: `The ${name} document is valid` });
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
    if (isForgery(error)) this.#noteForgery(`the ${name} document`, error);
    events.raise({
      eventType: "Invalid Configuration",
      object: name,
      level: "ERROR",
      message: `The ${name} document, version ${version}, was refused: ${error.message}`.slice(0, 1024),
      details: { document: name, version, code: error.code, ...error.details },
    });
    this.#report(name, { name, version, at: clock.now(), durationMs: 0, outcome: "refused", sections: {} });
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

  #noteForgery(what: string, error: AgentError): void {
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
    this.#unsent.add(name);
  }

  async #sendApplied(): Promise<void> {
    const connection = this.#connection;
    if (connection === undefined) return;
    for (const name of this.#unsent) {
      const report = this.#applied.get(name);
      this.#unsent.delete(name);
      if (report === undefined) continue;
      try {
        await connection.rpc.request("document.applied", report, withinTime(connection.signal, ANSWER_MS));
      } catch (error) {
        if (connection.signal.aborted) return;
        this.#options.log.warn({ document: name, reason: toError(error).message }, "report was not taken");
      }
    }
  }
}

const FORGERIES: ReadonlySet<string> = new Set(["bad-signature", "replayed", "below-floor", "invalid-claims"]);

function isForgery(error: unknown): error is InputError {
  return error instanceof InputError && FORGERIES.has(error.code);
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
