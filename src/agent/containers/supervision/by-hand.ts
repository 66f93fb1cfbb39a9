import { HostError, InputError } from "../../../errors.ts";
import type { OutputFrame } from "../../../host/engine/engine.ts";
import type { StartOptions } from "../model/compute.ts";
import { isBusy, type Standing } from "../model/standing.ts";
import type { Worker } from "./worker.ts";

/** Starts a container by hand; see `Compute.start`. */
export async function startByHand(
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
export async function stopByHand(worker: Worker, signal: AbortSignal): Promise<void> {
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
