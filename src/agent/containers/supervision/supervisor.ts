import { InputError, toError } from "../../../errors.ts";
import type { EngineCache, EngineChange } from "../../../host/engine/cache.ts";
import type { ContainerSummary, Engine, EngineInfo } from "../../../host/engine/engine.ts";
import { untilAborted } from "../../../lib/async/until-aborted.ts";
import { isParked, isWanting, standsAt, type Found } from "../model/standing.ts";
import { ContainerJobs, type ContainerJobsOptions } from "./container-jobs.ts";
import { CONTAINER_LABEL, foundOf, sortContainers } from "../model/own-containers.ts";
import { platformOf } from "../images/platform.ts";
import type { PullingOptions } from "../images/pulling.ts";
import type { Seen, WorkView } from "./seen.ts";
import { Slots } from "../model/slots.ts";
import { RunningSettings } from "./running-settings.ts";
import type { Wanted } from "../model/wanted.ts";
import { Worker } from "./worker.ts";

export interface SupervisorOptions
  extends
    Omit<ContainerJobsOptions, "engine" | "pulling" | "onCreated">,
    Pick<PullingOptions, "credential" | "registry"> {
  /** Opens the engine on first use. */
  readonly open: () => { readonly engine: Engine; readonly cache: EngineCache };
  readonly space: (path: string) => ReturnType<PullingOptions["space"]>;
  /** Memory nodes of the machine as the kernel lists them, `0-1`; one if absent. */
  readonly memoryNodes?: () => string;
  /** Called on any change that a pass would observe. */
  readonly requestPass: () => void;
  /** Reports whether we stopped this container to move it to another network; asked once per stop. */
  readonly isMoving?: (engineId: string) => boolean;
  /** Called if the ledger cannot be written. */
  readonly onRefused: (error: unknown) => void;
}

/** The engine and the parts that work over it. */
interface Opened {
  readonly engine: Engine;
  readonly cache: EngineCache;
  readonly jobs: ContainerJobs;
  readonly settings: RunningSettings;
}

const MAX_PULLS = 3;
const FIRST_LIST_MS = 3000;
const PASS_GAP_MS = 1000;
/** Time after which an engine that shuts down has closed its socket. */
const STOP_JUDGED_MS = 3000;
const AFTER_START_MS = 30_000;
/** Events that may change a container's settings. */
const RESETTLING: ReadonlySet<string> = new Set(["update", "start", "restart", "die"]);

/** Supervises the containers: one worker each, over one engine. */
export class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #workers = new Map<string, Worker>();
  readonly #listeners = new Set<() => void>();
  readonly #ending = new AbortController();
  readonly #reported = new Map<string, string>();
  #opened: Opened | undefined;
  #info: EngineInfo | undefined;
  /** Cached while the engine is unreachable, so that a start needs no query. */
  #architecture: string | undefined;
  #foreign: readonly ContainerSummary[] = [];
  #hasList = false;
  #wasUnwell = false;
  #cancelRequest: (() => void) | undefined;
  /** Resolve waits for the engine's first state. */
  readonly #stateWaiters = new Set<() => void>();
  /** Cancel pending checks of stops. */
  readonly #judgements = new Set<() => void>();

  constructor(options: SupervisorOptions) {
    this.#options = options;
  }

  /** Reports whether there are containers to supervise. */
  get isUsed(): boolean {
    return this.#workers.size > 0 || !this.#options.ledger.isEmpty;
  }

  get engineStanding(): Seen["engine"] {
    return this.#opened?.cache.standing ?? { state: "unused" };
  }

  /** The engine's description; undefined until it has answered. */
  get info(): EngineInfo | undefined {
    return this.#info;
  }

  get workers(): ReadonlyMap<string, Worker> {
    return this.#workers;
  }

  /** Returns the engine and opens it if needed. */
  get engine(): Engine {
    return this.#open().engine;
  }

  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /** Returns the observed containers; waits briefly for the engine's first list. */
  async observe(signal: AbortSignal): Promise<Seen> {
    const { clock } = this.#options;
    const { engine, cache, settings } = this.#open();
    if (cache.standing.state === "unknown") await this.#firstList(cache, signal);
    if (cache.standing.state === "well") {
      if (!this.#hasList) this.#sync();
      await this.#readInfo(engine, signal);
      await settings.inspect(this.#workers.values(), signal);
    }
    return {
      engine: cache.standing,
      info: this.#info,
      now: clock.now(),
      works: new Map([...this.#workers.values()].map((worker) => [worker.id, this.view(worker)])),
      foreign: this.#foreign,
    };
  }

  view(worker: Worker): WorkView {
    const { ledger } = this.#options;
    const { id, wanted, standing, since } = worker;
    const { cache, settings } = this.#opened ?? {};
    const container = cache?.containers.get(standing.found?.id ?? "");
    const row = ledger.containerOf(standing.found?.id);
    return {
      id,
      row: ledger.definitions.get(id),
      wanted,
      standing,
      since,
      limits: row?.limits,
      privileges: row?.privileges,
      refusedLimits: worker.refusedLimits,
      unaskedImage: worker.unaskedImage,
      tampered: settings?.changes(worker),
      unsetFields: settings?.unset(standing.found?.id ?? "") ?? [],
      container,
      oomKills: worker.oomKills,
    };
  }

  /** Sets the goal of a definition. */
  want(wanted: Wanted): void {
    const { ledger, clock } = this.#options;
    const { id, name } = wanted.spec;
    const known = ledger.definitions.get(id);
    const first = { firstSeen: clock.now(), firstVersion: wanted.version };
    const empty = {
      byHand: undefined,
      schedule: undefined,
      nextRun: undefined,
      lastRun: undefined,
      refused: undefined,
    };
    // The address is stored before use, so that no other container gets it after a crash.
    const address = wanted.blueprint?.address ?? known?.address;
    ledger.putDefinition({ ...empty, ...first, ...known, id, name, address });
    this.#worker(id).want(wanted);
  }

  /** Stops a container and keeps it. */
  suspend(id: string): void {
    this.#workers.get(id)?.suspend();
  }

  /** Stops and removes a container and deletes its record. */
  drop(id: string): void {
    this.#worker(id).drop();
  }

  /** Applies new limits to a running container; refused limits do not block. */
  async update(wanted: Wanted, signal: AbortSignal): Promise<void> {
    const { blueprint } = wanted;
    const { settings } = this.#open();
    const worker = this.#worker(wanted.spec.id);
    if (blueprint !== undefined) await settings.update(worker, blueprint, signal);
    settings.forget(worker.standing.found?.id ?? "");
    this.want(wanted);
  }

  /** Restores the settings or the network of a definition's container that somebody changed at the engine. */
  async restoreChanges(id: string, what: "settings" | "network", signal: AbortSignal): Promise<void> {
    const worker = this.#workers.get(id);
    if (worker === undefined) return;
    const { settings } = this.#open();
    await (what === "network" ? settings.restoreAttachment(worker, signal) : settings.restore(worker, signal));
  }

  /** Resolves when no short job runs for these definitions, or after `ms`. */
  async settled(ids: readonly string[], ms: number, signal: AbortSignal): Promise<void> {
    const late = AbortSignal.timeout(ms);
    const workers = ids.flatMap((id) => this.#workers.get(id) ?? []);
    const waits = workers.map((worker) =>
      worker.until(() => (isParked(worker.standing) ? true : undefined), AbortSignal.any([signal, late])),
    );
    await Promise.allSettled(waits);
    signal.throwIfAborted();
  }

  async close(): Promise<void> {
    this.#ending.abort(new InputError("cancelled", "the agent is stopping"));
    this.#cancelRequest?.();
    for (const cancel of this.#judgements) cancel();
    await Promise.all([...this.#workers.values()].map((worker) => worker.close()));
    this.#opened?.cache.close();
  }

  #open(): Opened {
    if (this.#opened !== undefined) return this.#opened;
    const { open, memoryNodes = () => "0", space, requestPass } = this.#options;
    const { engine, cache } = open();
    const parts = { ...this.#options, engine };
    const settings = new RunningSettings({
      ...parts,
      machine: () => this.#info && { ...this.#info, memoryNodes: memoryNodes() },
      onRetry: requestPass,
    });
    const pulling: PullingOptions = {
      ...parts,
      slots: new Slots(MAX_PULLS),
      space: () => this.#info && space(this.#info.rootDirectory),
      platform: async (signal) =>
        platformOf(this.#architecture ?? (await this.#readInfo(engine, signal))?.architecture),
    };
    const jobs = new ContainerJobs({
      ...parts,
      pulling,
      onCreated: (blueprint, detail) => settings.noteCreated(blueprint, detail),
    });
    this.#opened = { engine, cache, jobs, settings };
    cache.onChange((change) => this.#changed(change));
    return this.#opened;
  }

  /** Requests the engine's description until it has answered once. */
  async #readInfo(engine: Engine, signal: AbortSignal): Promise<EngineInfo | undefined> {
    this.#info ??= await engine.info(signal).catch((error: unknown) => {
      signal.throwIfAborted();
      this.#options.log.debug({ err: toError(error) }, "the container engine does not describe itself");
      return undefined;
    });
    this.#architecture = this.#info?.architecture ?? this.#architecture;
    return this.#info;
  }

  async #firstList(cache: EngineCache, signal: AbortSignal): Promise<void> {
    const enough = AbortSignal.any([signal, AbortSignal.timeout(FIRST_LIST_MS)]);
    try {
      await cache.refresh(enough);
      // A list is a snapshot; the engine is well once later events are received too.
      if (cache.standing.state !== "unknown") return;
      await untilAborted(new Promise<void>((resolve) => this.#stateWaiters.add(resolve)), enough);
    } catch {
      // Its state is in the cache.
      signal.throwIfAborted();
    }
  }

  #worker(id: string, found?: Found): Worker {
    const known = this.#workers.get(id);
    if (known !== undefined) return known;
    const worker = new Worker(id, found, {
      ...this.#options,
      jobs: {
        run: (worker, job, signal) => this.#open().jobs.run(worker, job, signal),
        found: (id, signal) => this.#open().jobs.found(id, signal),
      },
      onChange: (worker) => this.#moved(worker),
    });
    this.#workers.set(id, worker);
    return worker;
  }

  #changed(change: EngineChange): void {
    if (this.#ending.signal.aborted || this.#opened === undefined) return;
    const { cache } = this.#opened;
    if (cache.standing.state !== "unknown") {
      for (const resolve of this.#stateWaiters) resolve();
      this.#stateWaiters.clear();
    }
    try {
      if (change.kind === "event") return this.#event(this.#opened, change);
      if (change.kind === "standing" && cache.standing.state !== "well") {
        // Another engine may come back in its place.
        this.#info = undefined;
        this.#wasUnwell = true;
        this.#requestPass();
        return;
      }
      if (change.kind === "listed") this.#sync();
      const isBack = change.kind === "standing" && this.#wasUnwell;
      if (isBack) this.#wasUnwell = false;
      for (const worker of this.#workers.values()) {
        // Another engine may support what the previous one did not.
        if (isBack) worker.refusal = undefined;
        worker.take({ is: "engine-well" });
      }
      this.#requestPass();
    } catch (error) {
      this.#options.onRefused(error);
    }
  }

  #event({ cache, settings }: Opened, { id, action, exitCode }: Extract<EngineChange, { kind: "event" }>): void {
    const { ledger, clock, isMoving } = this.#options;
    const container = cache.containers.get(id);
    const definition = container?.labels[CONTAINER_LABEL] ?? ledger.containerOf(id)?.definition;
    const worker = definition === undefined ? undefined : this.#workers.get(definition);
    if (worker === undefined) {
      if (container !== undefined) this.#sync();
      return;
    }
    if (RESETTLING.has(action)) settings.forget(id);
    if (action === "update") this.#requestPass();
    if (action === "oom") worker.oomKills += 1;
    if (action === "start" || action === "restart") {
      const enough = AbortSignal.any([this.#ending.signal, AbortSignal.timeout(AFTER_START_MS)]);
      void settings.reapply(worker, id, enough);
    }
    const isStop = action === "stop" && isMoving?.(id) !== true;
    if (isStop) worker.take({ is: "stopped", id });
    if (isStop) this.#judgeStop(worker, id);
    const sorted = sortContainers(cache.containers.values(), ledger, clock.now());
    if (sorted.foreign.length !== this.#foreign.length) this.#requestPass();
    this.#foreign = sorted.foreign;
    const found = foundOf(sorted.own.get(worker.id) ?? []);
    if (action === "die" && found?.id === id) worker.take({ is: "exited", found, code: exitCode });
    else worker.take({ is: "found", found });
  }

  /**
   * Determines whether somebody stopped a container: an engine that shuts down reports the same stop for all its containers, and accepts
   * no new connection afterwards.
   */
  #judgeStop(worker: Worker, id: string): void {
    if (this.#opened === undefined) return;
    const { engine, cache } = this.#opened;
    const { connections } = cache;
    const isServing = (): boolean => cache.standing.state === "well" && cache.connections === connections;
    const judge = async (): Promise<void> => {
      this.#judgements.delete(cancel);
      const { signal } = this.#ending;
      const isAnswered = await engine.ping(signal).then(
        () => true,
        () => false,
      );
      if (isAnswered && isServing()) return worker.take({ is: "stopped-outside", id });
      worker.take({ is: "stopped-with-engine", id });
      // It may be back already: a list made now counts as its return.
      if (isAnswered) await cache.refresh(signal).catch(() => undefined);
    };
    const cancel = this.#options.clock.after(STOP_JUDGED_MS, () => void judge());
    this.#judgements.add(cancel);
  }

  /** Updates all workers from a full list. */
  #sync(): void {
    if (this.#opened === undefined) return;
    const { ledger, clock, onRefused } = this.#options;
    const sorted = sortContainers(this.#opened.cache.containers.values(), ledger, clock.now());
    this.#hasList = true;
    this.#foreign = sorted.foreign;
    try {
      for (const { nonce, definition } of sorted.missing) {
        if (this.#workers.get(definition)?.standing.job === undefined) ledger.dropContainer(nonce);
      }
      for (const own of sorted.own.values()) {
        for (const { row, container } of own) ledger.putContainer({ ...row, engineId: container.id });
      }
    } catch (error) {
      // Existing containers count even if they cannot be recorded.
      onRefused(error);
    }
    for (const id of new Set([...ledger.definitions.keys(), ...sorted.own.keys(), ...this.#workers.keys()])) {
      const found = foundOf(sorted.own.get(id) ?? []);
      const known = this.#workers.get(id);
      if (known === undefined) this.#worker(id, found);
      else known.take({ is: "found", found });
    }
  }

  #moved(worker: Worker): void {
    const { standing, id } = worker;
    const isGone = standing.goal.is === "unknown" && standing.found === undefined && standing.job === undefined;
    if (isGone && !this.#options.ledger.definitions.has(id)) {
      this.#workers.delete(id);
      this.#reported.delete(id);
      void worker.close();
    }
    const { state, reason } = standsAt(standing, this.#options.clock.now());
    const seen = `${state} ${reason} ${isWanting(standing)} ${standing.isLost}`;
    if (this.#reported.get(id) !== seen) {
      if (this.#workers.has(id)) this.#reported.set(id, seen);
      this.#requestPass();
    }
    for (const listener of this.#listeners) listener();
  }

  /** Requests a pass, rate limited. */
  #requestPass(): void {
    if (this.#ending.signal.aborted) return;
    for (const listener of this.#listeners) listener();
    if (this.#cancelRequest !== undefined) return;
    const cancel = this.#options.clock.after(PASS_GAP_MS, () => {
      this.#cancelRequest = undefined;
      this.#options.requestPass();
    });
    this.#cancelRequest = () => {
      cancel();
      this.#cancelRequest = undefined;
    };
  }
}
