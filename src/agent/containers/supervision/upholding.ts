import type { Logger } from "pino";
import { toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { ContainerSettings, Engine } from "../../../host/engine/engine.ts";
import type { LaunchingOptions } from "./launching.ts";
import { changedAttachment, changedFields, puttingBack, type AttachmentDrift, type Machine } from "../model/upheld.ts";
import type { Blueprint } from "../model/wanted.ts";
import type { Worker } from "./worker.ts";

export interface UpholdingOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** Undefined while the engine has not described the machine. */
  readonly machine: () => Machine | undefined;
}

/** Changes that somebody made to a container at the engine. */
export interface Tampered {
  /** Fields of `HostConfig` to restore. */
  readonly fields: readonly string[];
  readonly attachment: AttachmentDrift | undefined;
}

type Hands = Pick<LaunchingOptions, "ensureNetwork" | "hasNetwork"> & { readonly engine: Engine };

/** Shorter than the interval between passes. */
const FRESH_MS = 30_000;
/** Containers inspected in one pass; with more, each is inspected less often. */
const MAX_ASKED = 64;
const ASK_MS = 3000;

/** Finds changes that somebody made to running containers at the engine, and restores them. */
export class Upholding {
  readonly #options: UpholdingOptions;
  /** Inspections by engine id, with monotonic time. */
  readonly #seen = new Map<string, { readonly at: number; readonly settings: ContainerSettings }>();
  /** Fields that this engine does not set as requested, by engine id. */
  readonly #unset = new Map<string, readonly string[]>();

  constructor(options: UpholdingOptions) {
    this.#options = options;
  }

  /** Requests an inspection in the next pass. */
  forget(id: string): void {
    this.#seen.delete(id);
  }

  /** Inspects containers that were not inspected lately; one that fails is inspected again in a later pass. */
  async look(engine: Engine, workers: Iterable<Worker>, signal: AbortSignal): Promise<void> {
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
    const answers = await Promise.allSettled(due.map((id) => this.#ask(engine, id, enough)));
    signal.throwIfAborted();
    const failed = answers.find(({ status }) => status === "rejected");
    if (failed?.status === "rejected")
      log.debug({ err: toError(failed.reason) }, "not all containers could be inspected");
  }

  /** The changes to the container of a definition; undefined when there are none, or it was not inspected. */
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

  /** The fields that the engine does not set as requested. */
  unset(id: string): readonly string[] {
    return this.#unset.get(id) ?? [];
  }

  /** Notes the settings of a new container: fields that the engine has not set then, it never sets. */
  made({ upheld }: Pick<Blueprint, "upheld">, id: string, settings: ContainerSettings): void {
    if (upheld === undefined) return;
    this.#noteUnset(id, changedFields(upheld, settings, this.#options.machine()));
  }

  /**
   * Restores limits and restart policy.
   * @throws {HostError} `engine-refused`, `engine-unwell`, `timeout`
   */
  async restoreSettings(engine: Engine, worker: Worker, signal: AbortSignal): Promise<void> {
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
    const settings = await this.#ask(engine, id, signal);
    this.#noteUnset(id, settings === undefined ? [] : changedFields(upheld, settings, machine));
  }

  /**
   * Attaches a container to its network again, and to no other.
   * @throws {HostError} as the engine, and `address-conflict` when the network cannot be made
   */
  async restoreAttachment(
    { engine, ensureNetwork, hasNetwork }: Hands,
    worker: Worker,
    signal: AbortSignal,
  ): Promise<void> {
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
      if ((await hasNetwork?.(signal)) !== true) await ensureNetwork(signal);
      await engine.connectNetwork(name, id, { aliases: [alias], address }, signal);
    }
    const { log } = this.#options;
    log.warn(
      { container: wanted?.spec.name, network: name, ...drift },
      "the container is attached to its network again",
    );
  }

  async #ask(engine: Engine, id: string, signal: AbortSignal): Promise<ContainerSettings | undefined> {
    const detail = await engine.inspectContainer(id, signal);
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
