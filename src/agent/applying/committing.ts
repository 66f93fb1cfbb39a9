import { InputError } from "../../errors.ts";
import { commitFiles, type Rollback } from "../../checkpoint/commit-files.ts";
import type { WindowRequest } from "../../checkpoint/window.ts";
import { aloneIn } from "../../host/process/checkpoint-lock.ts";
import type { OnDamage } from "../../host/files/damage.ts";
import type { Files } from "../../host/files/files.ts";
import { CONFIRM_SECONDS } from "../../protocol/values/commit.ts";
import type { Config } from "../../protocol/documents/documents.ts";
import type { CommitReport, PendingChange, RolledBackChange } from "../../protocol/local/commit.ts";
import { SectionName } from "../../protocol/sections/sections.ts";
import { JsonObject } from "../../protocol/values/values.ts";
import { effectiveOf, withLocalNetwork } from "./effective-config.ts";
import { Commit, type CommitOptions } from "../reconcile/commit.ts";
import { isSameValue, type Guards } from "../reconcile/work.ts";
import type { Desired, DesiredDocuments } from "../shadow/desired.ts";
import type { EventLog } from "../telemetry/events.ts";
import { defined } from "../../lib/defined.ts";

export interface CommittingOptions extends Pick<
  CommitOptions,
  "clock" | "log" | "bootId" | "owner" | "checkpoint" | "prover" | "watch" | "onProven" | "onRelease" | "onStanding"
> {
  readonly files: Files;
  /** The state directory's `desired/`. */
  readonly dir: string;
  readonly onDamage: OnDamage;
  readonly documents: Pick<DesiredDocuments, "current" | "rolledBack" | "rollBack" | "isUnproven">;
  /** The network to apply if no document has one. */
  readonly network?: JsonObject;
  readonly events: Pick<EventLog, "notice">;
  /** Called when the documents must be applied again. */
  readonly onChange: () => void;
}

/** Time limit of waiting for a restore by the guard. */
const LOCK_MS = 10_000;

/** Decides on confirmed commits for documents and people: how long they wait, whether they need confirmation, and what a revert does. */
export class Committing {
  readonly #options: CommittingOptions;
  readonly commit: Commit;
  /** The network that a person tries, until a window is open for it. */
  #trial: { readonly network: JsonObject; readonly minutes: number } | undefined;

  /** When the trial that is being reverted was opened: its network is no longer wanted, though its window is still open. */
  #overAt: number | undefined;

  constructor(options: CommittingOptions) {
    this.#options = options;
    const { clock, files, dir, documents } = options;
    this.commit = new Commit({
      ...options,
      files: commitFiles(files, dir, options.onDamage),
      alone: (work, signal) => aloneIn(dir, { clock, waitMs: LOCK_MS, signal }, work),
      request: () => this.#request(),
      original: (section) => this.#original(section),
      isGiven: (section, raw) =>
        section === "network" && documents.current.node === undefined && isSameValue(raw, options.network),
      refuse: (rollback, guards) => this.#refuse(rollback, guards),
      onRollback: (rollback) => this.#onRollback(rollback),
      onFound: () => {
        if (this.commit.kept !== undefined || this.commit.window?.isLocal === true) options.onChange();
      },
    });
    documents.isUnproven = (name, version) => {
      const { window, confirmed, heldChange } = this.commit;
      const tried = window?.versions ?? (heldChange.current?.is === "waiting" ? heldChange.current.last.versions : {});
      return tried[name] === version && confirmed.versions[name] !== version;
    };
  }

  /** Returns the configuration with what is tried or confirmed on this machine instead of the documents' sections. */
  override(config: Config): Config {
    const { window, kept } = this.commit;
    if (window?.isLocal === true && window.openedAt !== this.#overAt) return withSections(config, window.guards);
    if (this.#trial !== undefined) return { ...config, network: this.#trial.network };
    return kept === undefined || isOver(kept, (name) => valueOf(config, name))
      ? config
      : withSections(config, kept.sections);
  }

  /** Lets a change that was refused be tried again, if a newer document asks for a confirmed commit. */
  async heed(): Promise<void> {
    const { node } = this.#options.documents.current;
    const held = this.commit.heldChange.current;
    if (node?.body.confirm === undefined || held === undefined) return;
    if (node.version > (held.last.versions["node"] ?? 0)) await this.commit.heldChange.forget(held.guards);
  }

  /**
   * Applies a network instead of the documents' network for some minutes, until it is confirmed.
   * @throws {InputError} `not-supported`, `busy`.
   */
  async begin(network: JsonObject, minutes: number): Promise<void> {
    const { node } = this.#options.documents.current;
    if (node !== undefined && node.body.type !== "Node")
      throw new InputError("not-supported", "agents have no section network");
    if (this.commit.window !== undefined || this.#trial !== undefined) {
      throw new InputError("busy", "another change is pending: confirm or revert it first");
    }
    await this.commit.heldChange.forget({ network });
    this.#trial = { network, minutes };
    this.#options.onChange();
  }

  /** Ends the trial: its window owns it from here on. Without a window nothing was applied, so the documents are applied again. */
  settled(): void {
    if (this.#trial === undefined) return;
    this.#trial = undefined;
    if (this.commit.window === undefined) this.#options.onChange();
  }

  report(): CommitReport {
    const pending = this.pending();
    const last = this.commit.lastRollback;
    const { kept } = this.commit;
    const isKept = kept !== undefined && !isOver(kept, (name) => this.#original(name));
    return {
      schema: 1,
      ...defined({ pending }),
      ...(last === undefined ? {} : { lastTakenBack: this.#rolledBackChange(last) }),
      ...(isKept ? { kept: { since: kept.at } } : {}),
    };
  }

  /** The change that is being applied, proven or confirmed. */
  pending(): PendingChange | undefined {
    const { window, leftMs = 0, unreached } = this.commit;
    if (window === undefined) return undefined;
    const { mode, state, openedAt, deadlineAt, versions, isLocal, before } = window;
    return {
      mode,
      state,
      since: Math.round(openedAt),
      deadline: Math.round(deadlineAt),
      secondsLeft: Math.ceil(leftMs / 1000),
      versions,
      isLocal,
      before: { session: before.session, gateways: before.gateways.length },
      unreached:
        state === "proving" ? unreached.map(({ target, message }) => `${target}: ${message}`.slice(0, 1024)) : [],
    };
  }

  #rolledBackChange(last: Rollback): RolledBackChange {
    const { at, by, code, evidence, step, mode, isLocal, versions, failed } = last;
    const held = this.commit.heldChange.current;
    const { current } = this.#options.documents;
    const isHeld = held !== undefined && !isLocal && held.last.at === at;
    const isStill =
      isHeld && Object.keys(held.guards).some((name) => isSameValue(held.guards[name], this.#original(name)));
    const isGone = (["node", "cluster"] as const).some((name) => {
      const refused = current[name]?.refused?.version;
      return refused !== undefined && refused === versions[name];
    });
    return {
      at: Math.round(at),
      by,
      code,
      evidence,
      ...defined({ step }),
      mode,
      isLocal,
      versions,
      is: isGone ? "refused" : isStill ? held.is : "over",
      failed,
    };
  }

  #request(): WindowRequest & { readonly isLocal: boolean } {
    if (this.#trial !== undefined) return { mode: "try", seconds: this.#trial.minutes * 60, isLocal: true };
    const { node } = this.#options.documents.current;
    const isAsked = node !== undefined && this.commit.confirmed.versions["node"] !== node.version;
    const { seconds = CONFIRM_SECONDS.usual, tryMinutes } = (isAsked ? node.body.confirm : undefined) ?? {};
    if (tryMinutes !== undefined) return { mode: "try", seconds: tryMinutes * 60, isLocal: false };
    return { mode: "save", seconds, isLocal: false };
  }

  #original(section: string): unknown {
    return valueOf(this.#effectiveOf(this.#options.documents.current), section);
  }

  #effectiveOf(desired: Desired): Config {
    return withLocalNetwork(effectiveOf(desired), desired, this.#options.network).config;
  }

  #onRollback(rollback: Rollback): void {
    if (rollback.isLocal) {
      this.#trial = undefined;
      this.#overAt = this.commit.window?.openedAt;
    }
    const { code, evidence, step, versions, mode, by } = rollback;
    const at = step === undefined ? "" : ` at ${step.kind} ${step.subject}`;
    this.#options.events.notice({
      eventType: "Configuration Update Failure",
      object: "config.network",
      level: "ERROR",
      message: `A change of the network was reverted${at}: ${evidence}`.slice(0, 1024),
      details: { code, mode, by, versions, ...defined({ step }) },
    });
    if (rollback.isLocal) this.#options.onChange();
  }

  /** Rolls back the document that made the change, if its previous version is what was proven. */
  async #refuse({ at, code, evidence, step, versions }: Rollback, guards: Guards): Promise<boolean> {
    const { documents, onChange, log } = this.#options;
    for (const name of ["node", "cluster"] as const) {
      if (documents.current[name]?.version !== versions[name] || versions[name] === undefined) continue;
      const back = await documents.rolledBack(name).catch(() => undefined);
      if (back === undefined) continue;
      const config = this.#effectiveOf(back.desired);
      if (!Object.entries(guards).every(([section, raw]) => this.#isBack(section, valueOf(config, section), raw)))
        continue;
      const why = { code, evidence, ...defined({ step }) };
      const { from, to } = await documents.rollBack(name, Math.round(at), why, versions[name]);
      log.warn({ document: name, from, to, code, evidence }, "document refused");
      onChange();
      return true;
    }
    return false;
  }

  #isBack(section: string, value: unknown, tried: unknown): boolean {
    const isKnown = Object.hasOwn(this.commit.confirmed.sections, section);
    return isKnown ? isSameValue(this.commit.confirmed.sections[section], value) : !isSameValue(value, tried);
  }
}

/** Reports whether the documents have changed since it was confirmed. */
function isOver({ over }: { readonly over: Guards }, original: (section: string) => unknown): boolean {
  return Object.entries(over).some(([name, raw]) => !isSameValue(original(name), raw));
}

function valueOf(config: Config, section: string): unknown {
  const name = SectionName.safeParse(section);
  return name.success ? config[name.data] : undefined;
}

/** Replaces sections by name; null removes one. */
function withSections(config: Config, sections: Guards): Config {
  const changed = { ...config };
  for (const [section, raw] of Object.entries(sections)) {
    const name = SectionName.safeParse(section);
    const value = JsonObject.safeParse(raw);
    if (name.success && value.success) changed[name.data] = value.data;
    else if (name.success) delete changed[name.data];
  }
  return changed;
}
