import type { Logger } from "pino";
import { InputError } from "../../errors.ts";
import type { OnDamage } from "../../host/files/damage.ts";
import type { Files } from "../../host/files/files.ts";
import { wallTimes, type Clock, type WallTimes } from "../../host/clock.ts";
import { Checkpoint } from "../../checkpoint/checkpoint.ts";
import type { Signal } from "../../lib/async/signal.ts";
import { DocumentName } from "../../protocol/documents/claims.ts";
import type { Config, NodeDocument } from "../../protocol/documents/documents.ts";
import { restrictionText } from "../../protocol/values/restriction.ts";
import type {
  PlanReport,
  Reason,
  RollbackReport,
  RollbackRequest,
  WhyReport,
} from "../../protocol/documents/reconcile.ts";
import type { CommitReport, PendingChange } from "../../protocol/local/commit.ts";
import type { NetworkTryRequest } from "../../protocol/local/api.ts";
import { sectionNames, type SectionName } from "../../protocol/sections/sections.ts";
import type { ShadowMap } from "../../protocol/values/shadow.ts";
import { Committing, type CommittingOptions } from "./committing.ts";
import { ConfigEvents, type ConfigEventsOptions } from "./config-events.ts";
import { effectiveOf, withLocalNetwork } from "./effective-config.ts";
import { Engine } from "../reconcile/engine.ts";
import type { Random } from "../../lib/async/backoff.ts";
import type { Reconciler } from "../reconcile/section.ts";
import { sameVersions, whyOf, type Standing } from "../reconcile/section-status.ts";
import type { AgentSettings } from "../settings.ts";
import { judgeDocuments, STORED_ONLY, storedOnly, type SectionAnswer, type Verdicts } from "../shadow/applied.ts";
import { configFacts } from "./config-facts.ts";
import type { Desired, DesiredDocuments } from "../shadow/desired.ts";
import type { Effective } from "../shadow/findings.ts";
import type { Versions } from "../reconcile/work.ts";
import { defined } from "../../lib/defined.ts";

export interface ApplyingOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly files: Files;
  readonly settings: Pick<AgentSettings, "stateDir" | "network">;
  readonly documents: Pick<DesiredDocuments, "current" | "deletedAt" | "rolledBack" | "rollBack" | "isUnproven">;
  /** The prover of changes that could disconnect the node, their watchdog outside the agent, and their owner. */
  readonly commit: Pick<CommittingOptions, "bootId" | "owner" | "prover" | "watch" | "onProven">;
  /** In the order of their dependencies. */
  readonly sections: readonly Reconciler[];
  /** Returns the sections over other documents, for plans; without it plans use `sections`. */
  readonly sectionsOf?: (documents: Desired) => readonly Reconciler[];
  readonly events: ConfigEventsOptions["events"];
  readonly signals: {
    /** Set to the effective configuration, before the engine applies it. */
    readonly config: Signal<Config>;
    /** Set whenever the state of a section, a trial or a document may have changed. */
    readonly settled: Pick<Signal<void>, "set">;
  };
  readonly onFault: (code: string, message: string) => void;
  readonly onDamage: OnDamage;
}

/** A section that hangs must not keep the node from connecting. */
const ENFORCE_WITHIN_MS = 20_000;

/** Applies the documents to this machine: merges them, hands them to the engine, and reports the results. */
export class Applying {
  readonly #options: ApplyingOptions;
  readonly #events: ConfigEvents;
  readonly engine: Engine;
  readonly committing: Committing;
  /** The state of the node, and a function that returns when it began. */
  #state: { readonly is: NodeDocument["state"]; readonly since: () => number } | undefined;
  readonly #wall: WallTimes;
  /** True once the network of the local settings is applied without a node document. */
  #isLocal = false;
  #merged: { readonly of: Desired; readonly effective: Effective } | undefined;

  constructor(options: ApplyingOptions) {
    this.#options = options;
    this.#wall = wallTimes(options.clock);
    const { clock, random, log, files, settings, sections, events, onFault, onDamage } = options;
    this.#events = new ConfigEvents({ clock, events });
    const dir = `${settings.stateDir}/desired`;
    const checkpoint = new Checkpoint(files, dir);
    this.committing = new Committing({
      ...options.commit,
      clock,
      log: log.child({ component: "commit" }),
      files,
      dir,
      checkpoint,
      documents: options.documents,
      ...defined({ network: settings.network }),
      events,
      onDamage,
      onChange: () => {
        this.apply();
        this.#settle();
      },
      onRelease: () => this.engine.reevaluate("commit"),
      onStanding: () => this.#settle(),
    });
    this.engine = new Engine({
      clock,
      random,
      log: log.child({ component: "reconcile" }),
      sections,
      checkpoint,
      commit: this.committing.commit,
      onReport: () => this.#settle(),
      onFault,
    });
    this.#publish();
    this.engine.start();
  }

  /** Hands the documents to the engine. Without a node document it applies only the network of the local settings. */
  apply(): void {
    const { current } = this.#options.documents;
    this.#publish();
    if (current.node === undefined) return this.#applyLocal();
    const { body, receivedAt } = current.node;
    if (this.#state?.is !== body.state) {
      const at = this.#options.clock.elapsed();
      this.#state = { is: body.state, since: this.#state === undefined ? () => receivedAt : () => this.#wall.of(at) };
    }
    void this.committing.heed();
    const config = this.config();
    this.engine.set({ version: versionsOf(current), config, isActive: body.state === "ACTIVE" });
  }

  /** Applies the network of the local settings, which is all there is before the first document. */
  #applyLocal(): void {
    const config = this.config();
    if (config.network === undefined && !this.#isLocal) return;
    this.#isLocal = true;
    this.engine.set({ version: {}, config, isActive: true });
  }

  /** Resolves when the engine has finished its pass, or after 20 s. */
  async enforced(signal: AbortSignal): Promise<void> {
    const waiting = new AbortController();
    const sleeping = this.#options.clock.sleep(ENFORCE_WITHIN_MS, AbortSignal.any([signal, waiting.signal]));
    await Promise.race([this.engine.idle(), sleeping.catch(() => undefined)]);
    waiting.abort();
  }

  /** The result for each document; undefined until the engine has a result for every section. */
  verdicts(): Verdicts | undefined {
    const { current } = this.#options.documents;
    const version = versionsOf(current);
    const standings = new Map(this.engine.standings.map((standing) => [standing.section, standing]));
    const isAnswered = this.engine.names.every((name) => {
      const standing = standings.get(name);
      return standing !== undefined && sameVersions(standing.version, version);
    });
    if (current.node !== undefined && !isAnswered) return undefined;
    const answers = new Map([...standings].map(([name, standing]) => [name, answerOf(standing)]));
    return judgeDocuments(current, answers, this.#effective());
  }

  /** The parts of the cluster's configuration that this member cannot use. */
  clusterIssues(): Effective["errors"] {
    return this.#effective().errors;
  }

  /** The effective configuration: every section that is applied. */
  config(): Config {
    return this.committing.override(this.#effective().config);
  }

  /** The state of network changes that could disconnect the node. */
  network(): CommitReport {
    return this.committing.report();
  }

  /**
   * Tries a network instead of the documents' network. Resolves once it is proven or reverted.
   * @throws {InputError} `invalid-body` naming its faults; `not-supported`, `busy`.
   */
  async tryNetwork({ network, minutes }: NetworkTryRequest, signal: AbortSignal): Promise<CommitReport> {
    const config = { ...this.#effective().config, network };
    const plans = await this.engine.preview(config, this.#state?.is !== "INACTIVE", signal);
    const plan = plans.find(({ section }) => section === "network");
    if (plan === undefined) throw new InputError("not-supported", "this node does not apply the section network");
    const wrong = plan.error === undefined ? plan.issues : [{ message: plan.error.message }];
    if (wrong.length > 0) {
      const shown = wrong.slice(0, 10).map(({ message }) => message);
      throw new InputError("invalid-body", shown.join("; ").slice(0, 2048));
    }
    await this.committing.begin(network, minutes);
    await this.engine.idle();
    this.committing.settled();
    return this.network();
  }

  /** Confirms the pending change of the network. @throws {InputError} `not-found`, `busy`. */
  async keepNetwork(): Promise<CommitReport> {
    await this.engine.keep();
    return this.network();
  }

  /** Reverts the pending change of the network. @throws {InputError} `not-found`. */
  async revertNetwork(): Promise<CommitReport> {
    await this.engine.revert();
    return this.network();
  }

  /** The shadow facts about the configuration. */
  facts(): ShadowMap {
    const { standings } = this.engine;
    return configFacts({ desired: this.#options.documents.current, standings, unsupported: this.#storedOnly() });
  }

  /** Returns the steps that a configuration would take in place of the node's own; by default those of the node's own. */
  plan(config: Config | undefined, signal: AbortSignal): Promise<PlanReport> {
    return this.#planOf(this.#options.documents.current, config, signal);
  }

  /**
   * Applies the previous version of a document until a newer one is accepted, or only plans it.
   * @throws {InputError} `not-found` if there is no previous version, `inactive`; {HostError} if the disk refuses.
   */
  async rollback({ document, plan }: RollbackRequest, signal: AbortSignal): Promise<RollbackReport> {
    const { documents, clock, log } = this.#options;
    if (plan) {
      const { desired, from, to } = await documents.rolledBack(document);
      return { schema: 1, document, from, to, plan: await this.#planOf(desired, undefined, signal) };
    }
    const { from, to } = await documents.rollBack(document, clock.now());
    log.warn({ document, from, to }, "document rolled back");
    this.apply();
    this.#settle();
    return { schema: 1, document, from, to };
  }

  async #planOf(desired: Desired, config: Config | undefined, signal: AbortSignal): Promise<PlanReport> {
    const merged = this.#withLocal(effectiveOf(desired, config), desired);
    const { documents, sectionsOf } = this.#options;
    const tried = withConfig(desired, config);
    // A section may depend on what another one is going to be.
    const others = tried === documents.current ? undefined : sectionsOf?.(tried);
    const isActive = desired.node?.body.state !== "INACTIVE";
    const sections = await this.engine.preview(merged.config, isActive, signal, others);
    const known = new Set(this.engine.names);
    const unknown = sectionNames.filter((name) => merged.config[name] !== undefined && !known.has(name));
    const unsupported = unknown.map((section) => ({
      section,
      steps: [],
      total: 0,
      issues: [],
      unsupported: STORED_ONLY,
    }));
    return {
      schema: 1,
      sections: [...sections, ...unsupported],
      notes: [...merged.errors, ...merged.shadowed.map(shadowNote)],
    };
  }

  /** Returns the reason for every deviation from the documents, and for every state that may surprise. */
  why(): WhyReport {
    const pending = pendingReason(this.committing.pending());
    const reasons = [...rollbacks(this.#options.documents.current), ...pending, ...this.#switchedOff()];
    return { schema: 1, reasons: [...reasons, ...whyOf(this.engine.standings), ...this.#notApplied()] };
  }

  /** Desired sections that no reconciler of this version applies. */
  #storedOnly(): readonly SectionName[] {
    const type = this.#options.documents.current.node?.body.type ?? "Node";
    return storedOnly(this.config(), type, new Set(this.engine.names));
  }

  /** Returns their reasons, dated by the document that defines them. */
  #notApplied(): Reason[] {
    const { node, cluster } = this.#options.documents.current;
    return this.#storedOnly().map((section) => {
      const holder = node?.body.config[section] === undefined ? (cluster ?? node) : node;
      const since = holder?.receivedAt ?? 0;
      return { section, code: "unsupported", message: STORED_ONLY, since, lastAttempt: since };
    });
  }

  /** Returns the reason for which the node is deleted, restricted or INACTIVE, with the sections that are off because of it. */
  #switchedOff(): Reason[] {
    const { deletedAt } = this.#options.documents;
    const names = this.#options.sections.filter(({ needsDataPlane }) => needsDataPlane).map(({ name }) => name);
    const off = names.length === 0 ? "" : `, and with it are off: ${names.join(", ")}`;
    if (deletedAt !== undefined) {
      const times = { since: deletedAt, lastAttempt: deletedAt };
      return [{ section: "node", code: "deleted", message: `the control plane deleted this node${off}`, ...times }];
    }
    if (this.#state?.is !== "INACTIVE") return [];
    const since = this.#state.since();
    const { restricted } = this.#options.documents.current.node?.body ?? {};
    if (restricted !== undefined) {
      const message = `${restrictionText(restricted)}${off}`;
      return [{ section: "node", code: restricted.code, message, since, lastAttempt: since }];
    }
    const message = `the node is INACTIVE${off}`;
    return [{ section: "node", code: "inactive", message, since, lastAttempt: since, notice: true }];
  }

  /** Merges the documents once for each version of them. */
  #effective(): Effective {
    const { current } = this.#options.documents;
    if (this.#merged?.of !== current)
      this.#merged = { of: current, effective: this.#withLocal(effectiveOf(current), current) };
    return this.#merged.effective;
  }

  #withLocal(merged: Effective, desired: Desired): Effective {
    return withLocalNetwork(merged, desired, this.#options.settings.network);
  }

  #settle(): void {
    this.#events.evaluate(this.#options.documents.current, this.engine.standings);
    this.#publish();
    this.#options.signals.settled.set();
  }

  #publish(): void {
    this.#options.signals.config.set(this.config());
  }

  close(): Promise<void> {
    this.committing.commit.close();
    return this.engine.close();
  }
}

/** Returns a reason for each document that was rolled back. */
function rollbacks(desired: Desired): Reason[] {
  return DocumentName.options.flatMap((name) => {
    const { refused, version } = desired[name] ?? {};
    if (refused === undefined) return [];
    const { step, evidence } = refused.why ?? {};
    const at = step === undefined ? "" : ` at ${step.kind} ${step.subject}`;
    const why = evidence === undefined ? "" : `${at}: ${evidence}`;
    const message = `version ${refused.version} was rolled back${why}; version ${version} applies until a newer one arrives`;
    const times = { since: refused.at, lastAttempt: refused.at };
    return [{ section: "documents", item: name, code: "rolled-back", message, ...times }];
  });
}

/** Returns the reason for a change that is not yet proven or confirmed. */
function pendingReason(pending: PendingChange | undefined): Reason[] {
  if (pending === undefined) return [];
  const { state, mode, secondsLeft, since, unreached } = pending;
  const until = `within ${secondsLeft} s it must be`;
  const open = unreached.length === 0 ? "" : `; not reached: ${unreached.join("; ")}`;
  const message =
    state === "awaiting-keep"
      ? `the network is on trial: ${until} confirmed, or it is reverted`
      : `the network is changed${mode === "try" ? " on trial" : ""}: ${until} proven${open}`;
  // An unreachable target needs attention, regardless of the result of the change.
  const notice = unreached.length === 0 ? ({ notice: true } as const) : {};
  return [{ section: "network", code: "unconfirmed", message, since, lastAttempt: since, ...notice }];
}

function shadowNote({ path, by }: Effective["shadowed"][number]): PlanReport["notes"][number] {
  return { path, code: "shadowed", message: `${path}: the cluster's ${by} applies` };
}

function versionsOf({ node, cluster, domain }: Desired): Versions {
  return {
    ...(node === undefined ? {} : { node: node.version }),
    ...(cluster === undefined ? {} : { cluster: cluster.version }),
    ...(domain === undefined ? {} : { domain: domain.version }),
  };
}

const MAX_ISSUES = 1000;
const lines = (texts: readonly string[]): string[] => texts.map((text) => text.slice(0, 1024));

/** Returns the result of a section as it is reported: its own reason first, unless its items have the same. */
function answerOf(standing: Standing): SectionAnswer {
  const reasons = whyOf([standing]);
  const textOf = ({ item, message }: Reason): string =>
    item === undefined || message.startsWith(item) ? message : `${item}: ${message}`;
  const issues = reasons.filter(({ notice }) => notice !== true).map(textOf);
  const notices = reasons.filter(({ notice }) => notice === true).map((reason) => `notice: ${textOf(reason)}`);
  return {
    state: standing.outcome.state,
    issues:
      issues.length <= MAX_ISSUES
        ? lines(issues)
        : [...lines(issues.slice(0, MAX_ISSUES - 1)), `and ${issues.length - MAX_ISSUES + 1} more`],
    notices: lines(notices.slice(0, MAX_ISSUES)),
    steps: standing.steps,
  };
}

function withConfig(desired: Desired, config: Config | undefined): Desired {
  const { node } = desired;
  if (node === undefined || config === undefined) return desired;
  return { ...desired, node: { ...node, body: { ...node.body, config } } };
}
