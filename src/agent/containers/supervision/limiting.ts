import { HostError, toError } from "../../../errors.ts";
import type { Blueprint, Wanted } from "../model/wanted.ts";
import type { LaunchingOptions } from "./launching.ts";
import type { Worker } from "./worker.ts";

type LimitingOptions = Pick<LaunchingOptions, "engine" | "ledger" | "clock" | "log" | "afterStart">;

/** Until limits that were refused are tried again. */
const RETRY_MS = 60_000;

/**
 * Gives the container of a definition that runs other limits. What the engine says against them is noted with the worker and tried again
 * after a minute (`onRetry`): the container goes on with those it has.
 * @throws {HostError} `engine-unwell`, `timeout`.
 */
export async function giveLimits(
  options: LimitingOptions,
  worker: Worker,
  blueprint: Blueprint,
  onRetry: () => void,
  signal: AbortSignal,
): Promise<void> {
  const { engine, ledger, clock } = options;
  const row = [...ledger.containers.values()].find(({ engineId }) => engineId === worker.standing.found?.id);
  if (row?.engineId === undefined) return;
  const id = row.engineId;
  const isGiven = await unlessRefused(() => engine.updateContainer(id, blueprint.update, signal), {
    clock,
    worker,
    blueprint,
    onRetry,
  });
  if (!isGiven) return;
  worker.refusedLimits = undefined;
  await setAfterStart(options, id, blueprint, signal);
  ledger.putContainer({ ...row, limits: blueprint.limitsHash });
}

/** Changes a container and reports whether the engine did so. A refusal is noted with its worker, and `onRetry` called after a minute. */
export async function unlessRefused(
  change: () => Promise<void>,
  {
    clock,
    worker,
    blueprint,
    onRetry,
  }: {
    readonly clock: LaunchingOptions["clock"];
    readonly worker: Worker;
    readonly blueprint: Blueprint;
    readonly onRetry: () => void;
  },
): Promise<boolean> {
  try {
    await change();
    return true;
  } catch (error) {
    if (!(error instanceof HostError) || error.code !== "engine-refused") throw error;
    const refused = { limits: blueprint.limitsHash, reason: error.message };
    worker.refusedLimits = refused;
    clock.after(RETRY_MS, () => {
      if (worker.refusedLimits !== refused) return;
      worker.refusedLimits = undefined;
      onRetry();
    });
    return false;
  }
}

/** What the engine cannot do for a container itself is done again when it has started one that nobody asked it to. */
export async function limitAgain(
  options: LimitingOptions,
  { wanted, standing: { found, job } }: { readonly wanted: Wanted | undefined; readonly standing: Worker["standing"] },
  id: string,
  signal: AbortSignal,
): Promise<void> {
  const blueprint = wanted?.blueprint;
  if (blueprint === undefined || job !== undefined || found?.id !== id || found.hash !== blueprint.hash) return;
  await setAfterStart(options, id, blueprint, signal).catch((error: unknown) => {
    if (!signal.aborted) options.log.warn({ container: id, err: toError(error) }, "not all limits were set");
  });
}

/** A machine that lacks what it takes is no reason to leave out what it has. */
async function setAfterStart(
  { engine, afterStart, log }: LimitingOptions,
  id: string,
  blueprint: Blueprint,
  signal: AbortSignal,
): Promise<void> {
  const detail = await engine.inspectContainer(id, signal);
  if (detail === undefined || detail.pid === 0) return;
  await afterStart(detail, blueprint, signal).catch((error: unknown) => {
    signal.throwIfAborted();
    log.warn({ container: id, err: toError(error) }, "not all limits were set");
  });
}
