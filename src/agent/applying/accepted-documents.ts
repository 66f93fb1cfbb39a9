import { isDeepStrictEqual } from "node:util";
import type { Logger } from "pino";
import { toError, type AgentError } from "../../errors.ts";
import { wallTimes, type Clock, type WallTimes } from "../../host/clock.ts";
import type { Signal } from "../../lib/async/signal.ts";
import type { DocumentApplied } from "../../protocol/channel/methods.ts";
import { DocumentName } from "../../protocol/documents/claims.ts";
import type { Fault } from "../faults/fault.ts";
import type { AppliedReports } from "../shadow/applied.ts";
import type { DesiredDocuments } from "../shadow/desired.ts";
import type { EventLog } from "../telemetry/events.ts";
import type { Applying } from "./applying.ts";

type DocumentKind = DocumentApplied["name"];

export interface AcceptedDocumentsOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly documents: Pick<DesiredDocuments, "current" | "deletedAt" | "newest" | "setDeleted">;
  readonly applying: Pick<Applying, "apply" | "verdicts">;
  readonly events: Pick<EventLog, "raise" | "clear">;
  readonly signals: {
    readonly settled: Pick<Signal<void>, "changed">;
    readonly facts: Pick<Signal<void>, "set">;
    readonly reports: Pick<Signal<readonly DocumentKind[]>, "set">;
  };
}

interface Refusal {
  readonly report: DocumentApplied;
  readonly message: string;
  /** Monotonic milliseconds. */
  readonly at: number;
}

/** Owns the accepted documents: has them applied, and keeps the report that the control plane gets of each. */
export class AcceptedDocuments {
  readonly #options: AcceptedDocumentsOptions;
  readonly #wall: WallTimes;
  readonly #applied = new Map<DocumentKind, DocumentApplied>();
  /** Monotonic milliseconds. */
  readonly #appliedAt = new Map<DocumentKind, number>();
  /** Newer documents that were refused; the report of the applied version stays in `#applied`. */
  readonly #refusals = new Map<DocumentKind, Refusal>();
  #startedAt: number;

  constructor(options: AcceptedDocumentsOptions) {
    this.#options = options;
    this.#wall = wallTimes(options.clock);
    this.#startedAt = options.clock.elapsed();
    options.signals.settled.changed(() => this.#settled());
  }

  /** The report of each applied document. */
  get applied(): AppliedReports {
    return new Map(
      [...this.#applied].map(([name, report]) => {
        const at = this.#appliedAt.get(name);
        return [name, at === undefined ? report : Object.assign({}, report, { at: this.#wall.of(at) })];
      }),
    );
  }

  /** The faults of the documents that were last received. */
  get faults(): readonly Fault[] {
    return [...this.#refusals.values()].map(({ report, message, at }) => ({
      code: "document-refused",
      message: `the ${report.name} document ${report.version} was refused, and the previous version stays applied: ${message}`,
      since: this.#wall.of(at),
    }));
  }

  /** The documents that have a report for the control plane. */
  get reported(): readonly DocumentKind[] {
    return [...new Set([...this.#applied.keys(), ...this.#refusals.keys()])];
  }

  /** The newest report of a document: of its refusal, if a newer version was refused. */
  reportOf(name: DocumentKind): DocumentApplied | undefined {
    return this.#refusals.get(name)?.report ?? this.#applied.get(name);
  }

  /** Applies the documents: at start those from disk, and again whenever one has changed. */
  apply(): void {
    this.#startedAt = this.#options.clock.elapsed();
    this.#options.applying.apply();
    this.#settled();
  }

  /** Applies a document that was accepted, or the removal of the cluster's document. */
  accepted(name: DocumentKind, version: number): void {
    const { clock, documents, events, signals } = this.#options;
    events.clear({ eventType: "Invalid Configuration", object: name, message: `The ${name} document is valid` });
    this.#refusals.delete(name);
    if (name === "cluster" && documents.current.cluster === undefined) this.#applied.delete("cluster");
    if (name === "keys") {
      this.#note({ name, version, at: clock.now(), durationMs: 0, outcome: "converged", sections: {} });
      signals.reports.set([name]);
    } else {
      this.apply();
    }
    signals.facts.set();
  }

  /** Reports a document that was refused. Nothing changes. */
  refused(name: DocumentKind, version: number, error: AgentError): void {
    const { clock, log, events, signals } = this.#options;
    log.warn({ document: name, version, code: error.code, reason: error.message }, "document refused");
    events.raise({
      eventType: "Invalid Configuration",
      object: name,
      level: "ERROR",
      message: `The ${name} document, version ${version}, was refused: ${error.message}`.slice(0, 1024),
      details: { document: name, version, code: error.code, ...error.details },
    });
    const report = { name, version, at: clock.now(), durationMs: 0, outcome: "refused", sections: {} } as const;
    this.#refusals.set(name, { report, message: error.message.slice(0, 1024), at: clock.elapsed() });
    signals.reports.set([name]);
  }

  /** Notes that the control plane deleted this node, or has it again. A deleted node runs neither data plane nor containers. */
  setDeleted(isDeleted: boolean): void {
    const { documents, clock, log, signals } = this.#options;
    const isKnown = (documents.deletedAt !== undefined) === isDeleted;
    if (isKnown && !isDeleted) return;
    documents.setDeleted(isDeleted ? clock.now() : undefined).catch((error: unknown) => {
      log.warn({ err: toError(error) }, "the deletion is not saved; it is saved when the control plane repeats it");
    });
    if (isKnown) return;
    if (isDeleted) log.error("the control plane deleted this node; its data plane and containers stop");
    else log.info("the control plane has this node again");
    this.apply();
    signals.facts.set();
  }

  /** Renews the reports whose content has changed, once the engine has a result for every section. */
  #settled(): void {
    const { applying, clock, documents, signals } = this.#options;
    const verdicts = applying.verdicts();
    if (verdicts === undefined) return;
    const changed = DocumentName.options.filter((name) => {
      const verdict = verdicts[name];
      if (verdict === undefined) return false;
      const version = documents.newest(name);
      const last = this.#applied.get(name);
      if (last?.version === version && isDeepStrictEqual({ ...last, ...verdict }, last)) return false;
      const durationMs = Math.round(clock.elapsed() - this.#startedAt);
      this.#note({ name, version, at: clock.now(), durationMs, ...verdict });
      return true;
    });
    if (changed.length === 0) return;
    signals.facts.set();
    signals.reports.set(changed);
  }

  #note(report: DocumentApplied): void {
    this.#applied.set(report.name, report);
    this.#appliedAt.set(report.name, this.#options.clock.elapsed());
  }
}
