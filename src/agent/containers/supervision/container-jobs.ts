import type { Logger } from "pino";
import { HostError, InternalError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { ContainerDetail, Engine } from "../../../host/engine/engine.ts";
import type { ContainerSpec } from "../../../protocol/sections/exec/config.ts";
import { ensureImage, isFull, type PullingOptions } from "../images/pulling.ts";
import { failureCode } from "../model/failure-code.ts";
import type { ContainerRow, Ledger } from "../model/ledger.ts";
import {
  CONTAINER_LABEL,
  engineNameOf,
  foundOf,
  OWNER_LABEL,
  sortContainers,
  stateOf,
  type Own,
} from "../model/own-containers.ts";
import { Slots } from "../model/slots.ts";
import type { Found, Job } from "../model/standing.ts";
import type { Blueprint } from "../model/wanted.ts";
import type { Attachment, JobRunner, Worker } from "./worker.ts";

export interface ContainerJobsOptions {
  readonly engine: Engine;
  readonly ledger: Ledger;
  readonly clock: Clock;
  readonly log: Logger;
  readonly pulling: PullingOptions;
  /** Uid of the node. */
  readonly owner: () => string;
  readonly nonce: () => string;
  /** Creates the container network if needed; rejects if that fails. */
  readonly ensureNetwork: (engine: Engine, signal: AbortSignal) => Promise<void>;
  /** Reports whether the network is as desired. Changes nothing. Without it the network is ensured each time. */
  readonly hasNetwork?: (engine: Engine, signal: AbortSignal) => Promise<boolean>;
  /** Returns why local policy forbids a container's privileges; without it nothing is forbidden. */
  readonly forbids?: (privileges: string | undefined) => Promise<string | undefined>;
  /** Called after the first start of a new container. */
  readonly onCreated: (blueprint: Blueprint, detail: ContainerDetail) => void;
  /** Applies limits that the engine does not support. */
  readonly afterStart: (detail: ContainerDetail, blueprint: Blueprint, signal: AbortSignal) => Promise<void>;
}

/** Recent state of a definition at the engine. */
interface Survey {
  readonly own: readonly Own[];
  readonly isNetworkReady: boolean;
}

/** A start whose image is on the machine. */
interface Launch {
  readonly worker: Worker;
  readonly spec: ContainerSpec;
  readonly blueprint: Blueprint;
  readonly attachment: Attachment | undefined;
  readonly imageId: string;
  readonly isRestart: boolean;
  readonly survey: Survey;
}

const MAX_STARTS = 4;
/** Stop timeout of a definition that is not known yet. */
const STOP_SECONDS = 30;
/** Stop timeout of an extra container, which has no definition of its own. */
const STRAY_STOP_SECONDS = 10;
/** Time limit of a clean-up, independent of aborts. */
const CLEAN_UP_MS = 30_000;

/** Runs the jobs of workers at one engine: starts, stops, replaces and removes the containers of definitions. */
export class ContainerJobs implements JobRunner {
  readonly #options: ContainerJobsOptions;
  readonly #slots = new Slots(MAX_STARTS);

  constructor(options: ContainerJobsOptions) {
    this.#options = options;
  }

  run(worker: Worker, job: Job, signal: AbortSignal): Promise<void> {
    switch (job.kind) {
      case "stop":
        return this.#stop(worker, signal);
      case "tidy":
        return this.#tidy(worker.id, signal);
      case "remove":
        return this.#remove(worker, signal);
      case "start":
      case "restart":
        return this.#start(worker, job, signal);
    }
  }

  async found(id: string, signal: AbortSignal): Promise<Found | undefined> {
    return foundOf(await this.#own(id, signal));
  }

  /** Stops all containers of a definition. */
  async #stop({ id, wanted }: Worker, signal: AbortSignal): Promise<void> {
    await this.#stopAll(await this.#own(id, signal), wanted?.spec.stopTimeSeconds ?? STOP_SECONDS, signal);
  }

  /** Stops and removes everything of a definition, and deletes its record unless it is desired again. */
  async #remove(worker: Worker, signal: AbortSignal): Promise<void> {
    const { id, wanted } = worker;
    const own = await this.#own(id, signal);
    await this.#stopAll(own, wanted?.spec.stopTimeSeconds ?? STOP_SECONDS, signal);
    await this.#clearAway(own, signal);
    if (worker.standing.goal.is === "gone") this.#options.ledger.dropDefinition(id);
  }

  /** Removes leftovers of an interrupted replacement. */
  async #tidy(id: string, signal: AbortSignal): Promise<void> {
    const own = await this.#own(id, signal);
    const kept = own.find(isUp) ?? own[0];
    if (kept === undefined) return;
    const others = own.filter((one) => one !== kept);
    await this.#stopAll(others, STRAY_STOP_SECONDS, signal);
    await this.#clearAway(others, signal);
    await this.#giveName(id, kept.container.id, signal);
  }

  /**
   * Starts a definition's container, after ensuring its image. A running container is stopped only once for the same successor: if the
   * successor cannot start, it is retried only after a change.
   */
  async #start(worker: Worker, job: Job, signal: AbortSignal): Promise<void> {
    const { ledger, pulling } = this.#options;
    const { wanted, attachment, id, standing } = worker;
    if (wanted?.blueprint === undefined) throw new InternalError("internal", `${id} has no blueprint`);
    const { blueprint, spec } = wanted;
    const cutShort = [...ledger.containers.values()].filter(
      (row) => row.definition === id && row.replaces !== undefined,
    );
    const isCutShort = cutShort.some(({ hash }) => hash === blueprint.hash);
    const revive = async (): Promise<void> => {
      if (cutShort.length > 0 && spec.execType === "service") await this.#revive(id, signal);
    };
    // The predecessor no longer waits for an unwanted successor.
    if (!isCutShort) await revive();
    const isLocalEnough = job.isCrash || isCutShort;
    if (!isLocalEnough) worker.unaskedImage = undefined;
    // The launch's state is read together with the image; a pull in between makes it stale.
    const early = cutShort.length === 0 ? this.#survey(id, signal) : undefined;
    early?.catch(() => undefined);
    let isLate = early === undefined;
    const request = {
      image: blueprint.image,
      isLocalEnough,
      onAsking: () => (isLate = true),
      onUnasked: (reason: string) => (worker.unaskedImage = { reference: blueprint.image.reference, reason }),
      onPulling: () => worker.take({ is: "phase", number: job.number, phase: "pulling" }),
      onProgress: attachment?.onPull ?? (() => undefined),
    };
    const imageId = await ensureImage(pulling, request, signal).catch(async (error: unknown) => {
      await revive();
      throw error;
    });
    signal.throwIfAborted();
    const { refusal } = worker;
    const isRunning = standing.found?.is === "running";
    const isSame = refusal?.hash === blueprint.hash && refusal.imageId === imageId;
    const disk = pulling.space();
    const hasRoomAgain = refusal?.code === "disk-full" && disk !== undefined && !isFull(disk);
    if (isRunning && isSame && !hasRoomAgain) throw new HostError(refusal.code ?? "not-started", refusal.reason);
    worker.take({ is: "phase", number: job.number, phase: "creating" });
    const survey = await (early === undefined || isLate ? this.#survey(id, signal) : early);
    const isRestart = job.kind === "restart" && standing.found?.hash === blueprint.hash;
    await this.#launch({ worker, spec, blueprint, attachment, imageId, isRestart, survey }, signal);
  }

  /**
   * Ensures that exactly one container of a definition runs. The predecessor is stopped only after its successor was created, and
   * restarted if the successor cannot start. After a crash at any point one of the two exists, and repeating the call finishes.
   */
  async #launch(launch: Launch, signal: AbortSignal): Promise<void> {
    const { engine, log, ensureNetwork, onCreated, afterStart } = this.#options;
    const { worker, spec, blueprint, imageId, isRestart } = launch;
    const { id } = worker;
    const { own, isNetworkReady } = launch.survey;
    await mayStart(blueprint);
    const usable = own.find(
      ({ row, container }) =>
        row.hash === blueprint.hash &&
        container.imageId === imageId &&
        // Each run that is no service gets a new container.
        (isRestart || spec.execType === "service" || container.state === "created"),
    );
    // The successor of two leftovers names its predecessor.
    const running = own.find((one) => one !== usable && isUp(one));
    const former = running ?? own.find(({ row }) => row.nonce === usable?.row.replaces);
    const chosen = await this.#slots.run(signal, async () => {
      if (!isNetworkReady) await ensureNetwork(engine, signal);
      return usable?.container.id ?? this.#create(launch, former?.row, signal);
    });
    const ending = own.filter((one) => one !== usable || isRestart);
    // A slow stop must not block other starts.
    await this.#stopAll(ending, spec.stopTimeSeconds, signal);
    // The engine may have started it since the decision.
    const isOn = !isRestart && usable !== undefined && stateOf(usable.container) === "running";
    const begin = async (): Promise<void> => {
      try {
        // The previous container, or one sharing a directory, may have replaced a bind's source by a link.
        await mayStart(blueprint);
        await this.#startContainer(chosen, launch.attachment, signal);
      } catch (error) {
        const isBack = await this.#fallBack(chosen, usable === undefined, former, signal);
        if (isBack) noteRefusal(launch, error);
        throw error;
      }
    };
    if (!isOn) await this.#slots.run(signal, begin);
    await this.#clearAway(
      own.filter(({ container }) => container.id !== chosen),
      signal,
    );
    const detail = await this.#giveName(id, chosen, signal).catch((error: unknown) => {
      // It runs; tidying does the rest.
      log.warn({ container: id, err: toError(error) }, "the container has not got its name yet");
      return engine.inspectContainer(chosen, signal);
    });
    if (detail === undefined || stateOf(detail) !== "running") return;
    if (usable === undefined) onCreated(blueprint, detail);
    await afterStart(detail, blueprint, signal).catch((error: unknown) =>
      log.warn({ container: id, err: toError(error) }, "not all limits were set"),
    );
  }

  /** Reads everything that a launch needs in parallel. Changes nothing. Rejects like the engine. */
  async #survey(id: string, signal: AbortSignal): Promise<Survey> {
    const { engine, hasNetwork } = this.#options;
    const asked = [this.#own(id, signal), hasNetwork?.(engine, signal) ?? Promise.resolve(false)] as const;
    // If one fails, the other's rejection is handled.
    await Promise.allSettled(asked);
    const [own, isNetworkReady] = await Promise.all(asked);
    return { own, isNetworkReady };
  }

  /** Restarts the predecessor of an interrupted replacement that is no longer desired or cannot finish. */
  async #revive(id: string, signal: AbortSignal): Promise<void> {
    const own = await this.#own(id, signal);
    if (own.some(isUp)) return;
    const former = own.find(({ row: { nonce } }) => own.some(({ row }) => row.replaces === nonce));
    if (former === undefined || (await this.#isForbidden(former))) return;
    try {
      await this.#options.engine.startContainer(former.container.id, signal);
    } catch (error) {
      signal.throwIfAborted();
      this.#options.log.warn(
        { container: id, err: toError(error) },
        "the previous container could not be started again",
      );
    }
  }

  /** Reads a definition's containers and updates the ledger. */
  async #own(id: string, signal: AbortSignal): Promise<readonly Own[]> {
    const { engine, ledger, owner, clock } = this.#options;
    const labels = [`${OWNER_LABEL}=${owner()}`, `${CONTAINER_LABEL}=${id}`];
    const sorted = sortContainers(await engine.listContainers(labels, signal), ledger, clock.now());
    for (const { nonce, definition } of sorted.missing) if (definition === id) ledger.dropContainer(nonce);
    const own = sorted.own.get(id) ?? [];
    for (const { row, container } of own) ledger.putContainer({ ...row, engineId: container.id });
    return own;
  }

  /** Starts a container; closes its output if the start fails. */
  async #startContainer(chosen: string, attachment: Attachment | undefined, signal: AbortSignal): Promise<void> {
    const { engine } = this.#options;
    const listening = new AbortController();
    try {
      if (attachment !== undefined) {
        attachment.onOutput(await engine.attach(chosen, AbortSignal.any([signal, listening.signal])));
      }
      await engine.startContainer(chosen, signal);
    } catch (error) {
      listening.abort(error);
      throw error;
    }
  }

  async #create(
    { worker, blueprint, survey: { own } }: Launch,
    former: ContainerRow | undefined,
    signal: AbortSignal,
  ): Promise<string> {
    const { engine, ledger, clock } = this.#options;
    const { id } = worker;
    const nonce = this.#options.nonce();
    const row: ContainerRow = {
      nonce,
      definition: id,
      engineId: undefined,
      hash: blueprint.hash,
      limits: blueprint.limitsHash,
      createdAt: clock.now(),
      replaces: former?.nonce,
      privileges: blueprint.privileges,
    };
    ledger.putContainer(row);
    try {
      const body = blueprint.bodyOf(nonce);
      // Its name may still belong to its predecessor or to a stranger.
      const name = `${engineNameOf(id)}-${nonce.slice(0, 8)}`;
      const created =
        own.length > 0
          ? await engine.createContainer(name, body, signal)
          : await engine.createContainer(engineNameOf(id), body, signal).catch((error: unknown) => {
              if (!isNameTaken(error)) throw error;
              return engine.createContainer(name, body, signal);
            });
      ledger.putContainer({ ...row, engineId: created.id });
      return created.id;
    } catch (error) {
      // Only a clear refusal means that no container exists; otherwise it is found by its nonce.
      if (error instanceof HostError && error.code === "engine-refused") ledger.dropContainer(nonce);
      throw error;
    }
  }

  /** Restarts the predecessor of a failed successor; returns whether it runs. */
  async #fallBack(successor: string, isNew: boolean, former: Own | undefined, signal: AbortSignal): Promise<boolean> {
    const { engine, ledger, log } = this.#options;
    // A requested stop applies to this container too.
    if (signal.aborted) return false;
    const enough = AbortSignal.any([signal, AbortSignal.timeout(CLEAN_UP_MS)]);
    let isBack = false;
    try {
      const mayRun = former !== undefined && !(await this.#isForbidden(former));
      if (mayRun) await engine.startContainer(former.container.id, enough);
      isBack = mayRun;
      if (!isNew && former === undefined) return isBack;
      await engine.removeContainer(successor, { force: true }, enough);
      const row = ledger.containerOf(successor);
      if (row !== undefined) ledger.dropContainer(row.nonce);
    } catch (error) {
      log.warn(
        { container: former?.row.definition, err: toError(error) },
        "the previous container could not be started again",
      );
    }
    return isBack;
  }

  async #isForbidden({ row, container }: Own): Promise<boolean> {
    const { forbids, log } = this.#options;
    const reason = await forbids?.(row.privileges);
    if (reason === undefined) return false;
    log.warn(
      { container: row.definition, engineId: container.id, reason },
      "local policy forbids the previous container; it stays stopped",
    );
    return true;
  }

  async #stopAll(own: readonly Own[], stopSeconds: number, signal: AbortSignal): Promise<void> {
    const { engine } = this.#options;
    for (const one of own) if (isUp(one)) await engine.stopContainer(one.container.id, stopSeconds, signal);
  }

  async #clearAway(own: readonly Own[], signal: AbortSignal): Promise<void> {
    const { engine, ledger } = this.#options;
    for (const { row, container } of own) {
      await engine.removeContainer(container.id, { force: true }, signal);
      ledger.dropContainer(row.nonce);
    }
  }

  /** @throws {HostError} as when somebody else has the name. */
  async #giveName(id: string, chosen: string, signal: AbortSignal): Promise<ContainerDetail | undefined> {
    const { engine, ledger } = this.#options;
    const name = engineNameOf(id);
    const detail = await engine.inspectContainer(chosen, signal);
    if (detail !== undefined && detail.name !== name) await engine.renameContainer(chosen, name, signal);
    const row = ledger.containerOf(chosen);
    if (row?.replaces !== undefined) ledger.putContainer({ ...row, replaces: undefined });
    return detail;
  }
}

/** @throws {HostError} `not-startable`, with the reason. */
async function mayStart({ check }: Blueprint): Promise<void> {
  const refusal = await check();
  if (refusal !== undefined) throw new HostError("not-startable", refusal);
}

/** Records that a successor could not start, so that its predecessor is not stopped for it again. */
function noteRefusal({ worker, blueprint: { hash, limitsHash: limits }, imageId }: Launch, error: unknown): void {
  // A failing engine proves nothing about the container, and missing conditions may be met later.
  if (error instanceof HostError && ["engine-unwell", "not-startable"].includes(error.code)) return;
  worker.refusal = { hash, limits, imageId, reason: toError(error).message, code: failureCode(error) };
}

/** Reports whether an error means that the name is in use: status 409 from Docker, 500 with a reason from Podman. */
function isNameTaken(error: unknown): boolean {
  if (!(error instanceof HostError) || error.code !== "engine-refused") return false;
  return error.details?.["status"] === 409 || /\bname\b.*\b(?:in use|taken|exists)\b/i.test(error.message);
}

function isUp({ container }: Own): boolean {
  return stateOf(container) !== "stopped";
}
