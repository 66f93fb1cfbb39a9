import { HostError, InputError } from "../../errors.ts";
import type { ContainerSpec } from "../../protocol/sections/exec/config.ts";
import {
  WIRE_STATES,
  type Compute,
  type ContainerStatus,
  type VolumeStatus,
  type StartOptions,
} from "./model/compute.ts";
import { isEnginesTurn, standsAt, isBusy, type Standing } from "./model/standing.ts";
import type { Supervisor } from "./supervision/supervisor.ts";
import type { WorkView } from "./supervision/seen.ts";
import type { Worker } from "./supervision/worker.ts";
import { defined } from "../../lib/defined.ts";
import type { OutputFrame } from "../../host/engine/engine.ts";

export interface ContainersOptions {
  readonly supervisor: Supervisor;
  readonly now: () => number;
  /** The applied definitions, whether or not they could be applied. */
  readonly definitions: () => readonly ContainerSpec[];
  readonly volumes: () => readonly VolumeStatus[];
  /** Returns the full reference of an image as a definition names it. @throws {InputError} if it is invalid. */
  readonly referenceOf: (repository: string, tag: string) => string;
  readonly startedAt: number;
}

const SHORT_ID = 12;
const SHELL: readonly string[] = ["/bin/sh"];

/** The containers of this node for triggers, the local API and reports. */
export function containersOf(options: ContainersOptions): Compute {
  const { supervisor, now, definitions, volumes, referenceOf, startedAt } = options;

  function workerOf(name: string): Worker {
    const worker = [...supervisor.workers.values()].find(
      ({ wanted, standing }) => wanted?.spec.name === name && standing.goal.is !== "gone",
    );
    if (worker !== undefined) return worker;
    if (!definitions().some((spec) => spec.name === name)) {
      throw new InputError("not-found", `no container is called ${name}`);
    }
    const { engineStanding: standing } = supervisor;
    const why = standing.state === "unwell" ? standing.reason : "it has not answered yet";
    throw new HostError("engine-unwell", `the container engine does not answer: ${why}`);
  }

  function idOf(name: string): string {
    const { found } = workerOf(name).standing;
    if (found === undefined) throw new InputError("not-configured", `${name} has no container`);
    return found.id;
  }

  return {
    get engine() {
      const standing = supervisor.engineStanding;
      const since = "since" in standing ? standing.since : startedAt;
      return { state: standing.state, since, reason: standing.state === "unwell" ? standing.reason : undefined };
    },
    containers() {
      const engine = supervisor.engineStanding;
      const known = [...supervisor.workers.values()]
        .flatMap((worker) => statusOf(supervisor.view(worker), now()))
        .map((status) => (engine.state === "unwell" ? unknownSince(status, engine) : status));
      const ids = new Set(known.map(({ id }) => id));
      const rest = definitions().flatMap((spec) => (ids.has(spec.id) ? [] : [notAsked(spec, engine, startedAt)]));
      return [...known, ...rest].toSorted((one, other) => (one.name < other.name ? -1 : 1));
    },
    volumes,
    onChange: (listener) => supervisor.onChange(listener),
    start: async (name, startOptions, signal) => startByHand(workerOf(name), startOptions, signal),
    stop: async (name, signal) => stopByHand(workerOf(name), signal),
    restart: async (name, signal) => restartByHand(workerOf(name), signal),
    async *logs(name, { follow, lines }, signal) {
      yield* supervisor.engine.logs(idOf(name), { follow, tail: lines }, signal);
    },
    async output(engineId, since, signal) {
      const detail = await supervisor.engine.inspectContainer(engineId, signal);
      if (detail === undefined) throw new InputError("not-found", `there is no container ${engineId}`);
      const options = { follow: true, tail: undefined, timestamps: true, ...defined({ since }) };
      const run = `${engineId.slice(0, SHORT_ID)}-${detail.startedAt}`;
      return { run, frames: supervisor.engine.logs(engineId, options, signal) };
    },
    async terminal(name, size, signal) {
      const worker = workerOf(name);
      if (worker.standing.found?.is !== "running") throw new InputError("not-configured", `${name} does not run`);
      const user = worker.wanted?.spec.user;
      return supervisor.engine.terminal(idOf(name), { command: SHELL, user, ...size }, signal);
    },
    images: async (signal) => supervisor.engine.listImages(signal),
    async removeImage(repository, tag, signal) {
      const reference = referenceOf(repository, tag);
      const image = await supervisor.engine.inspectImage(reference, signal);
      if (image === undefined) throw new InputError("not-found", `there is no image ${repository}:${tag}`);
      const users = [...supervisor.workers.values()].filter(
        (worker) => supervisor.view(worker).container?.imageId === image.id,
      );
      if (users.length > 0) {
        const names = users.map(({ wanted, id }) => wanted?.spec.name ?? id);
        throw new InputError("busy", `${repository}:${tag} is in use by ${names.join(", ")}`);
      }
      try {
        await supervisor.engine.removeImage(reference, signal);
      } catch (error) {
        const isInUse = error instanceof HostError && error.details?.["status"] === 409;
        throw isInUse ? new InputError("busy", error.message, { cause: error }) : error;
      }
    },
  };
}

function statusOf(view: WorkView, now: number): readonly ContainerStatus[] {
  const { wanted, standing, since, row, container } = view;
  if (wanted === undefined || standing.goal.is === "gone") return [];
  const { spec } = wanted;
  const { state, reason } = standsAt(standing, now);
  const { retry } = standing;
  return [
    {
      id: spec.id,
      name: spec.name,
      execType: spec.execType,
      enabled: spec.enabled,
      savesOutput: spec.saveOutput,
      state,
      since,
      reason,
      nextAttempt: retry !== undefined && retry.at > now && !isEnginesTurn(standing) ? retry.at : undefined,
      nextRun: row?.nextRun,
      isStoppedByHand:
        standing.byHand !== undefined && standing.goal.is === "kept" && standing.byHand === standing.goal.hash,
      health: container?.state === "running" ? container.health : undefined,
      restarts: standing.exits,
      oomKills: view.oomKills,
      lastExitCode: standing.lastExitCode,
      image: spec.image,
      engineId: standing.found?.id,
      imageId: container?.imageId,
      address: Object.values(container?.addresses ?? {})[0] ?? row?.address,
    },
  ];
}

/** Status of a container whose engine does not answer: `stopped` on the wire. */
function unknownSince(
  status: ContainerStatus,
  { since, reason }: { readonly since: number; readonly reason: string },
): ContainerStatus {
  const isUp = WIRE_STATES[status.state] !== "STOPPED";
  if (!isUp) return status;
  const because = `whether it runs is unknown, since the container engine does not answer: ${reason}`;
  return { ...status, state: "waiting", since, reason: because, health: undefined, nextAttempt: undefined };
}

/** Status of a container whose engine has not answered since the definition arrived. */
function notAsked(spec: ContainerSpec, engine: Supervisor["engineStanding"], startedAt: number): ContainerStatus {
  const { id, name, execType, enabled, saveOutput, image } = spec;
  const isUnwell = engine.state === "unwell";
  return {
    id,
    name,
    execType,
    enabled,
    savesOutput: saveOutput,
    image,
    since: isUnwell ? engine.since : startedAt,
    state: enabled ? "waiting" : "idle",
    reason: isUnwell
      ? `the container engine does not answer: ${engine.reason}`
      : "the container engine has not been asked yet",
    nextAttempt: undefined,
    nextRun: undefined,
    isStoppedByHand: false,
    health: undefined,
    restarts: 0,
    oomKills: 0,
    lastExitCode: undefined,
    engineId: undefined,
    imageId: undefined,
    address: undefined,
  };
}

/** Starts a container by hand; see `Compute.start`. */
async function startByHand(
  worker: Worker,
  { onOutput, onPull }: StartOptions,
  signal: AbortSignal,
): Promise<{ readonly exitCode: number | undefined }> {
  signal.throwIfAborted();
  const { execType, name } = specOf(worker);
  const before = worker.standing;
  if (isBusy(before)) {
    if (execType !== "service") throw new InputError("busy", `a run of ${name} is on`);
    if (isRunning(before) && onOutput === undefined) return { exitCode: undefined };
  }
  mayStart(worker);
  if (onOutput === undefined && onPull === undefined) {
    worker.take({ is: "asked", to: "start" });
    await started(worker, before.jobs, signal);
    return { exitCode: undefined };
  }
  let pumped: Promise<void> = Promise.resolve();
  const attachment = {
    onPull,
    onOutput: (output: AsyncIterable<OutputFrame>): void => {
      pumped = pump(output, onOutput);
      // The waiting caller is notified below.
      pumped.catch(() => undefined);
    },
  };
  worker.attachment = attachment;
  try {
    worker.take({ is: "asked", to: "start" });
    await started(worker, before.jobs, signal);
    if (onOutput === undefined) return { exitCode: undefined };
    await worker.until(() => (isOver(worker.standing) ? true : undefined), signal);
    await pumped;
    return { exitCode: worker.standing.lastExitCode };
  } catch (error) {
    if (signal.aborted && onOutput !== undefined) worker.take({ is: "asked", to: "stop" });
    throw error;
  } finally {
    if (worker.attachment === attachment) worker.attachment = undefined;
  }
}

/** Stops a container and keeps it stopped; see `Compute.stop`. */
async function stopByHand(worker: Worker, signal: AbortSignal): Promise<void> {
  specOf(worker);
  worker.take({ is: "asked", to: "stop" });
  const end = await worker.until(() => {
    const { job, retry, lastFailure } = worker.standing;
    if (job !== undefined) return undefined;
    return retry !== undefined && lastFailure !== undefined ? { failure: lastFailure } : {};
  }, signal);
  if (end.failure !== undefined) throw new HostError("not-stopped", end.failure);
}

/** Restarts a container; one that does not run is only started. */
export async function restartByHand(worker: Worker, signal: AbortSignal): Promise<void> {
  specOf(worker);
  mayStart(worker);
  const before = worker.standing.jobs;
  worker.take({ is: "asked", to: "restart" });
  await started(worker, before, signal);
}

async function started(worker: Worker, jobs: number, signal: AbortSignal): Promise<void> {
  const end = await worker.until(() => {
    const { standing } = worker;
    if (standing.job !== undefined || (standing.jobs === jobs && !isRunning(standing))) return undefined;
    const { lastFailure: failure, failureCode: code } = standing;
    return { failure, code, isCancelled: standing.goal.is !== "kept" || !standing.goal.enabled };
  }, signal);
  if (end.failure !== undefined) throw new HostError(end.code ?? "not-started", end.failure);
  if (end.isCancelled) throw new InputError("cancelled", "its definition was disabled or removed");
}

async function pump(output: AsyncIterable<OutputFrame>, onOutput: StartOptions["onOutput"]): Promise<void> {
  for await (const frame of output) await onOutput?.(frame);
}

function mayStart(worker: Worker): void {
  const { name } = specOf(worker);
  const { goal } = worker.standing;
  if (goal.is !== "kept" || !goal.enabled) throw new InputError("not-configured", `${name} is disabled`);
  if (goal.obstacle !== undefined) throw new HostError("not-startable", goal.obstacle);
}

function specOf(worker: Worker) {
  if (worker.wanted === undefined) throw new InputError("not-found", "no container of that name");
  return worker.wanted.spec;
}

function isRunning({ found, goal, job }: Standing): boolean {
  return job === undefined && found?.is === "running" && goal.is === "kept" && found.hash === goal.hash;
}

function isOver({ found, job }: Standing): boolean {
  return job === undefined && found?.is !== "running" && found?.is !== "restarting";
}
