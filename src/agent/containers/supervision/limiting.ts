import { HostError, toError } from "../../../errors.ts";
import type { Blueprint, Wanted } from "../model/wanted.ts";
import type { LaunchingOptions } from "./launching.ts";
import type { Worker } from "./worker.ts";

type LimitingOptions = Pick<LaunchingOptions, "engine" | "ledger" | "clock" | "log" | "afterStart">;

/** Delay before refused limits are retried. */
const RETRY_MS = 60_000;

/**
 * Applies new limits to a definition's running container. A refusal is recorded with the worker and retried after a minute (`onRetry`);
 * the container keeps its limits.
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

/** Updates a container and reports whether the engine accepted. Records a refusal with the worker and calls `onRetry` after a minute. */
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

/** Reapplies unsupported limits after the engine restarted a container. */
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

/** Ignores unsupported limits, so that the others are applied. */
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
