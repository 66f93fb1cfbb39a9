import { HostError, toError } from "../../../errors.ts";
import type { ContainerDetail, ContainerSettings } from "../../../host/engine/engine.ts";
import type { ContainerJobsOptions } from "./container-jobs.ts";
import { changedAttachment, changedFields, puttingBack, type AttachmentDrift, type Machine } from "../model/upheld.ts";
import type { Blueprint } from "../model/wanted.ts";
import type { Worker } from "./worker.ts";

export interface RunningSettingsOptions extends Pick<
  ContainerJobsOptions,
  "engine" | "ledger" | "clock" | "log" | "ensureNetwork" | "hasNetwork" | "afterStart"
> {
  /** Returns the machine; undefined while the engine has not described it. */
  readonly machine: () => Machine | undefined;
  /** Called when settings that the engine refused may be tried again. */
  readonly onRetry: () => void;
}

/** Changes that somebody made to a container at the engine. */
export interface Tampered {
  /** Fields of `HostConfig` to restore. */
  readonly fields: readonly string[];
  readonly attachment: AttachmentDrift | undefined;
}

/** Shorter than the interval between passes. */
const FRESH_MS = 30_000;
/** Containers inspected in one pass; with more, each is inspected less often. */
const MAX_ASKED = 64;
const ASK_MS = 3000;
/** Delay before refused settings are retried. */
const RETRY_MS = 60_000;

/** Settings of running containers: applies new limits, finds changes that somebody made at the engine, and restores them. */
export class RunningSettings {
  readonly #options: RunningSettingsOptions;
  /** Inspections by engine id, with monotonic time. */
  readonly #seen = new Map<string, { readonly at: number; readonly settings: ContainerSettings }>();
  /** Fields that this engine does not set as requested, by engine id. */
  readonly #unset = new Map<string, readonly string[]>();

  constructor(options: RunningSettingsOptions) {
    this.#options = options;
  }

  /** Requests an inspection in the next pass. */
  forget(id: string): void {
    this.#seen.delete(id);
  }

  /** Inspects containers that were not inspected lately; one that fails is inspected again in a later pass. */
  async inspect(workers: Iterable<Worker>, signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#options;
    const all = [...workers];
    const there = new Set(all.flatMap(({ standing: { found } }) => found?.id ?? []));
    for (const id of [...this.#seen.keys(), ...this.#unset.keys()]) if (!there.has(id)) this.#drop(id);
    const now = clock.elapsed();
    const atOf = (id: string): number => this.#seen.get(id)?.at ?? -Infinity;
    const due = all
      .flatMap((worker) => (isUpheld(worker) ? [worker.standing.found?.id ?? ""] : []))
      .filter((id) => now - atOf(id) >= FRESH_MS)
      .toSorted((one, other) => atOf(one) - atOf(other))
      .slice(0, MAX_ASKED);
    const enough = AbortSignal.any([signal, AbortSignal.timeout(ASK_MS)]);
    const answers = await Promise.allSettled(due.map((id) => this.#ask(id, enough)));
    signal.throwIfAborted();
    const failed = answers.find(({ status }) => status === "rejected");
    if (failed?.status === "rejected")
      log.debug({ err: toError(failed.reason) }, "not all containers could be inspected");
  }

  /** Returns the changes to the container of a definition; undefined if there are none, or it was not inspected. */
  changes(worker: Worker): Tampered | undefined {
    if (!isUpheld(worker)) return undefined;
    const { wanted, standing } = worker;
    const id = standing.found?.id ?? "";
    const upheld = wanted?.blueprint?.upheld;
    const settings = this.#seen.get(id)?.settings;
    if (upheld === undefined || settings === undefined) return undefined;
    const unset = this.#unset.get(id) ?? [];
    const fields = changedFields(upheld, settings, this.#options.machine()).filter((name) => !unset.includes(name));
    const attachment = changedAttachment(upheld, settings);
    return fields.length === 0 && attachment === undefined ? undefined : { fields, attachment };
  }

  /** Returns the fields that the engine does not set as requested. */
  unset(id: string): readonly string[] {
    return this.#unset.get(id) ?? [];
  }

  /** Notes the settings of a new container: fields that the engine has not set then, it never sets. */
  noteCreated({ upheld }: Blueprint, { id, settings }: ContainerDetail): void {
    if (upheld === undefined) return;
    this.#noteUnset(id, changedFields(upheld, settings, this.#options.machine()));
  }

  /**
   * Applies new limits to a definition's running container. Refused limits are recorded with the worker; the container keeps its own.
   * @throws {HostError} `engine-unwell`, `timeout`.
   */
  async update(worker: Worker, blueprint: Blueprint, signal: AbortSignal): Promise<void> {
    const { engine, ledger } = this.#options;
    const id = worker.standing.found?.id;
    const row = ledger.containerOf(id);
    if (id === undefined || row === undefined) return;
    const update = (): Promise<void> => engine.updateContainer(id, blueprint.update, signal);
    if (!(await this.#unlessRefused(worker, blueprint, update))) return;
    worker.refusedLimits = undefined;
    await this.#setAfterStart(id, blueprint, signal);
    ledger.putContainer({ ...row, limits: blueprint.limitsHash });
  }

  /** Reapplies limits that the engine does not support, after it restarted a container. */
  async reapply({ wanted, standing: { found, job } }: Worker, id: string, signal: AbortSignal): Promise<void> {
    const blueprint = wanted?.blueprint;
    if (blueprint === undefined || job !== undefined || found?.id !== id || found.hash !== blueprint.hash) return;
    await this.#setAfterStart(id, blueprint, signal).catch((error: unknown) => {
      if (!signal.aborted) this.#options.log.warn({ container: id, err: toError(error) }, "not all limits were set");
    });
  }

  /**
   * Restores limits and restart policy. A refusal is recorded with the worker.
   * @throws {HostError} `engine-unwell`, `timeout`
   */
  async restore(worker: Worker, signal: AbortSignal): Promise<void> {
    const blueprint = worker.wanted?.blueprint;
    if (blueprint === undefined) return;
    await this.#unlessRefused(worker, blueprint, () => this.#restore(worker, signal));
  }

  async #restore(worker: Worker, signal: AbortSignal): Promise<void> {
    const { engine } = this.#options;
    const { wanted, standing } = worker;
    const id = standing.found?.id;
    const upheld = wanted?.blueprint?.upheld;
    const { fields = [] } = this.changes(worker) ?? {};
    if (id === undefined || upheld === undefined || fields.length === 0) return;
    const machine = this.#options.machine();
    await engine.updateContainer(id, puttingBack(upheld, fields, machine), signal);
    this.#options.log.warn(
      { container: wanted?.spec.name, fields },
      "settings that were changed at the engine are restored",
    );
    const settings = await this.#ask(id, signal);
    this.#noteUnset(id, settings === undefined ? [] : changedFields(upheld, settings, machine));
  }

  /**
   * Attaches a container to its network again, and to no other.
   * @throws {HostError} as the engine, and `address-conflict` when the network cannot be made
   */
  async restoreAttachment(worker: Worker, signal: AbortSignal): Promise<void> {
    const { engine, ensureNetwork, hasNetwork, log } = this.#options;
    const { wanted, standing } = worker;
    const id = standing.found?.id;
    const upheld = wanted?.blueprint?.upheld;
    const drift = this.changes(worker)?.attachment;
    if (id === undefined || upheld === undefined || drift === undefined) return;
    const { name, alias, address } = upheld.network;
    this.forget(id);
    for (const other of drift.foreign) await engine.disconnectNetwork(other, id, signal);
    if (drift.own !== "as-made") {
      if (drift.own === "otherwise") await engine.disconnectNetwork(name, id, signal);
      if ((await hasNetwork?.(engine, signal)) !== true) await ensureNetwork(engine, signal);
      await engine.connectNetwork(name, id, { aliases: [alias], address }, signal);
    }
    log.warn(
      { container: wanted?.spec.name, network: name, ...drift },
      "the container is attached to its network again",
    );
  }

  /** Runs a change and reports whether the engine accepted it. A refusal is recorded with the worker until it may be retried. */
  async #unlessRefused(worker: Worker, blueprint: Blueprint, change: () => Promise<void>): Promise<boolean> {
    try {
      await change();
      return true;
    } catch (error) {
      if (!(error instanceof HostError) || error.code !== "engine-refused") throw error;
      const refused = { limits: blueprint.limitsHash, reason: error.message };
      worker.refusedLimits = refused;
      this.#options.clock.after(RETRY_MS, () => {
        if (worker.refusedLimits !== refused) return;
        worker.refusedLimits = undefined;
        this.#options.onRetry();
      });
      return false;
    }
  }

  /** Ignores unsupported limits, so that the others are applied. */
  async #setAfterStart(id: string, blueprint: Blueprint, signal: AbortSignal): Promise<void> {
    const { engine, afterStart, log } = this.#options;
    const detail = await engine.inspectContainer(id, signal);
    if (detail === undefined || detail.pid === 0) return;
    await afterStart(detail, blueprint, signal).catch((error: unknown) => {
      signal.throwIfAborted();
      log.warn({ container: id, err: toError(error) }, "not all limits were set");
    });
  }

  async #ask(id: string, signal: AbortSignal): Promise<ContainerSettings | undefined> {
    const detail = await this.#options.engine.inspectContainer(id, signal);
    if (detail === undefined || detail.pid === 0) {
      this.#seen.delete(id);
      return undefined;
    }
    this.#seen.set(id, { at: this.#options.clock.elapsed(), settings: detail.settings });
    return detail.settings;
  }

  #noteUnset(id: string, fields: readonly string[]): void {
    if (fields.length === 0) this.#unset.delete(id);
    else this.#unset.set(id, fields);
  }

  #drop(id: string): void {
    this.#seen.delete(id);
    this.#unset.delete(id);
  }
}

/** Reports whether this worker's container runs and was made as desired. */
function isUpheld({ wanted, standing: { found, job } }: Worker): boolean {
  const blueprint = wanted?.blueprint;
  return (
    job === undefined && found?.is === "running" && blueprint?.upheld !== undefined && found.hash === blueprint.hash
  );
}
