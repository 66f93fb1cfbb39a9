import { backoff } from "../../lib/async/backoff.ts";
import type { Logger } from "pino";
import { InputError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { Signal } from "../../lib/async/signal.ts";
import { ANSWER_MS, withinTime } from "../../lib/async/within-time.ts";
import type { ControlMethods, DocumentApplied } from "../../protocol/channel/methods.ts";
import { isTransient, type Handlers } from "../../protocol/channel/rpc.ts";
import type { AcceptedDocuments } from "../applying/accepted-documents.ts";
import type { Connection } from "../session/attempt.ts";
import type { DocumentSync } from "../shadow/document-sync.ts";
import type { signedStreams } from "../streams/signed.ts";
import type { Dispatcher } from "../triggers/execution/dispatch.ts";
import type { SignedTriggers } from "../triggers/execution/signed.ts";
import type { TriggerChannel } from "../triggers/execution/trigger.ts";

type DocumentKind = DocumentApplied["name"];

export interface ManagedNodeOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly reports: Pick<Signal<readonly DocumentKind[]>, "changed">;
  readonly accepted: Pick<AcceptedDocuments, "reported" | "reportOf">;
  readonly sync: Pick<DocumentSync, "online" | "offline" | "changed">;
  readonly dispatcher: Pick<Dispatcher, "attach">;
  readonly triggers: Pick<SignedTriggers, "run" | "cancel">;
  readonly openStream: ReturnType<typeof signedStreams>;
}

const RESEND = { firstMs: 2000, maxMs: 60_000 };

/** The wire of a registered node: what the control plane may call, and the reports on documents that it gets. */
export class ManagedNode {
  readonly #options: ManagedNodeOptions;
  #connection: Connection | undefined;
  readonly #unsent = new Set<DocumentKind>();
  /** Reports in a row that were not accepted. */
  #failures = 0;
  #cancelResend = (): void => undefined;

  constructor(options: ManagedNodeOptions) {
    this.#options = options;
    options.reports.changed((names) => {
      for (const name of names) this.#unsent.add(name);
      void this.#sendReports();
    });
  }

  /** The methods that the control plane may call in this session. */
  handlers(connection: Connection): Handlers<ControlMethods> {
    const { sync, triggers, openStream } = this.#options;
    const channel = triggerChannel(connection);
    return {
      "document.changed": ({ name, version }) => sync.changed(name, version),
      "trigger.run": ({ jws }) => triggers.run(jws, connection, channel),
      "trigger.cancel": ({ id }) => triggers.cancel(id),
      "trigger.input": () => {
        throw new InputError("not-supported", "no event of this version takes input");
      },
      "stream.open": (order) => openStream(order, connection),
    };
  }

  online(connection: Connection): void {
    const { accepted, sync, dispatcher } = this.#options;
    this.#connection = connection;
    sync.online(connection);
    dispatcher.attach(triggerChannel(connection));
    // The control plane may have been restored from a backup, so each session gets every report once.
    for (const name of accepted.reported) this.#unsent.add(name);
    void this.#sendReports();
  }

  offline(): void {
    this.#connection = undefined;
    this.#cancelResend();
    this.#failures = 0;
    this.#options.sync.offline();
  }

  async #sendReports(): Promise<void> {
    const connection = this.#connection;
    if (connection === undefined) return;
    this.#cancelResend();
    const again: DocumentKind[] = [];
    for (const name of this.#unsent) {
      const report = this.#options.accepted.reportOf(name);
      this.#unsent.delete(name);
      if (report === undefined) continue;
      try {
        await connection.rpc.request("document.applied", report, withinTime(connection.signal, ANSWER_MS));
      } catch (error) {
        if (connection.signal.aborted) return;
        this.#options.log.warn({ document: name, reason: toError(error).message }, "report was not accepted");
        if (isTransient(error)) again.push(name);
      }
    }
    if (again.length === 0) this.#failures = 0;
    else this.#resend(again);
  }

  #resend(names: readonly DocumentKind[]): void {
    for (const name of names) this.#unsent.add(name);
    this.#failures += 1;
    this.#cancelResend();
    this.#cancelResend = this.#options.clock.after(backoff(this.#failures, RESEND), () => void this.#sendReports());
  }
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
