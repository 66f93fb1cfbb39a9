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
import type { Random } from "../reconcile/retry.ts";
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
  /** Who proves a change that could cut the node off, who watches it from outside, and whose it is. */
  readonly commit: Pick<CommittingOptions, "bootId" | "owner" | "prover" | "watch" | "onProven">;
  /** In the order in which they depend on each other. */
  readonly sections: readonly Reconciler[];
  /** The same over documents that are not in force, to plan what they would do; those in force stand in when absent. */
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

/** A section that cannot be put to work must not keep the node from being reached. */
const ENFORCE_WITHIN_MS = 20_000;

/** Puts the documents in force to work on this machine: merges them, hands them to the engine, and says what became of them. */
export class Applying {
  readonly #options: ApplyingOptions;
  readonly #events: ConfigEvents;
  readonly engine: Engine;
  readonly committing: Committing;
  /** Since when the node is in its state, as far as this agent can tell, and which that is. */
  #state: { readonly is: NodeDocument["state"]; readonly since: () => number } | undefined;
  readonly #wall: WallTimes;
  /** What is set is of this machine alone, as no document is there yet. */
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
      onRelease: () => this.engine.look("commit"),
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

  /** Before the first document there is at most a network of this machine's own. */
  #applyLocal(): void {
    const config = this.config();
    if (config.network === undefined && !this.#isLocal) return;
    this.#isLocal = true;
    this.engine.set({ version: {}, config, isActive: true });
  }

  /** Resolves when what is in force has been put to work, or has had its time. */
  async enforced(signal: AbortSignal): Promise<void> {
    const waiting = new AbortController();
    const sleeping = this.#options.clock.sleep(ENFORCE_WITHIN_MS, AbortSignal.any([signal, waiting.signal]));
    await Promise.race([this.engine.idle(), sleeping.catch(() => undefined)]);
    waiting.abort();
  }

  /** What became of the documents in force; undefined until the engine has answered for them. */
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

  /** The effective configuration: all sections that are in force. */
  config(): Config {
    return this.committing.override(this.#effective().config);
  }

  /** How changes of the network stand that could cut the node off. */
  network(): CommitReport {
    return this.committing.report();
  }

  /**
   * Tries a network in the place of the documents' own, unless anything of it cannot be used; resolves once it is proven or taken back.
   * @throws {InputError} `invalid-body` naming what is wrong with it; `not-supported`, `busy`.
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

  /** Keeps the change of the network that is pending. @throws {InputError} `not-found`, `busy`. */
  async keepNetwork(): Promise<CommitReport> {
    await this.engine.keep();
    return this.network();
  }

  /** Takes the change of the network back that is pending. @throws {InputError} `not-found`. */
  async revertNetwork(): Promise<CommitReport> {
    await this.engine.revert();
    return this.network();
  }

  /** What the shadow says of it. */
  facts(): ShadowMap {
    const { standings } = this.engine;
    return configFacts({ desired: this.#options.documents.current, standings, unsupported: this.#storedOnly() });
  }

  /** The steps that this configuration, in the place of the node's own, would take; that in force when none is given. */
  plan(config: Config | undefined, signal: AbortSignal): Promise<PlanReport> {
    return this.#planOf(this.#options.documents.current, config, signal);
  }

  /**
   * Puts the document before the one in force to work until a newer version comes, or only plans it.
   * @throws {InputError} `not-found` when there is none before, `inactive`; {HostError} when the disk refuses.
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
    // One section may look at what another is to be.
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

  /** Everything that is not as it should be, or that one might not expect. */
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

  /** Their reasons, dated from the document that asks for them. */
  #notApplied(): Reason[] {
    const { node, cluster } = this.#options.documents.current;
    return this.#storedOnly().map((section) => {
      const holder = node?.body.config[section] === undefined ? (cluster ?? node) : node;
      const since = holder?.receivedAt ?? 0;
      return { section, code: "unsupported", message: STORED_ONLY, since, lastAttempt: since };
    });
  }

  /** That the node is deleted, or switched off, which is desired; and what with it. */
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

  /** Merged once for the documents in force. */
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
    this.#events.look(this.#options.documents.current, this.engine.standings);
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

/** What is not as the control plane wants it because somebody took it back. */
function rollbacks(desired: Desired): Reason[] {
  return DocumentName.options.flatMap((name) => {
    const { refused, version } = desired[name] ?? {};
    if (refused === undefined) return [];
    const { step, evidence } = refused.why ?? {};
    const at = step === undefined ? "" : ` at ${step.kind} ${step.subject}`;
    const why = evidence === undefined ? "" : `${at}: ${evidence}`;
    const message = `version ${refused.version} was rolled back${why}; version ${version} is in force until a newer one comes`;
    const times = { since: refused.at, lastAttempt: refused.at };
    return [{ section: "documents", item: name, code: "rolled-back", message, ...times }];
  });
}

/** A change that has yet to prove itself, or to be kept. */
function pendingReason(pending: PendingChange | undefined): Reason[] {
  if (pending === undefined) return [];
  const { state, mode, secondsLeft, since, unreached } = pending;
  const until = `within ${secondsLeft} s it must be`;
  const open = unreached.length === 0 ? "" : `; not reached: ${unreached.join("; ")}`;
  const message =
    state === "awaiting-keep"
      ? `the network is on trial: ${until} kept, or it is taken back`
      : `the network is changed${mode === "try" ? " on trial" : ""}: ${until} proven${open}`;
  // Whoever cannot be reached any more is not as it should be, whatever becomes of the change.
  const notice = unreached.length === 0 ? ({ notice: true } as const) : {};
  return [{ section: "network", code: "unconfirmed", message, since, lastAttempt: since, ...notice }];
}

function shadowNote({ path, by }: Effective["shadowed"][number]): PlanReport["notes"][number] {
  return { path, code: "shadowed", message: `${path}: the cluster's ${by} is in force` };
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

/** A standing in the words of the report; its own reason comes first unless its items say it. */
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
