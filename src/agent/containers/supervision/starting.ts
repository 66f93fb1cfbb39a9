import { HostError, InternalError, toError } from "../../../errors.ts";
import { failureCode } from "../model/failure-code.ts";
import { launch, revive, survey, type LaunchingOptions } from "./launching.ts";
import { ensureImage, isFull, type PullingOptions } from "../images/pulling.ts";
import type { Job } from "../model/standing.ts";
import type { Worker } from "./worker.ts";

export interface StartingOptions {
  readonly launching: LaunchingOptions;
  readonly pulling: PullingOptions;
}

/**
 * Starts a definition's container, after ensuring its image. A running container is stopped only once for the same successor: if the
 * successor cannot start, it is retried only after a change.
 */
export async function startWork(
  { launching, pulling }: StartingOptions,
  worker: Worker,
  job: Job,
  signal: AbortSignal,
): Promise<void> {
  const { wanted, attachment, id, standing } = worker;
  if (wanted?.blueprint === undefined) throw new InternalError("internal", `${id} has no blueprint`);
  const { blueprint, spec } = wanted;
  const cutShort = [...launching.ledger.containers.values()].filter(
    (row) => row.definition === id && row.replaces !== undefined,
  );
  const isCutShort = cutShort.some(({ hash }) => hash === blueprint.hash);
  const restore = async (): Promise<void> => {
    if (cutShort.length > 0 && spec.execType === "service") await revive(launching, id, signal);
  };
  // The predecessor no longer waits for an unwanted successor.
  if (!isCutShort) await restore();
  const request = {
    image: blueprint.image,
    isLocalEnough: job.isCrash || isCutShort,
    onUnasked: (reason: string) => (worker.unaskedImage = { reference: blueprint.image.reference, reason }),
    onPulling: () => worker.take({ is: "phase", number: job.number, phase: "pulling" }),
    onProgress: attachment?.onPull ?? (() => undefined),
  };
  if (!request.isLocalEnough) worker.unaskedImage = undefined;
  // The launch's state is read together with the image; a pull in between makes it stale.
  const early = cutShort.length === 0 ? survey(launching, id, signal) : undefined;
  early?.catch(() => undefined);
  let isLate = early === undefined;
  const imageId = await ensureImage(pulling, { ...request, onAsking: () => (isLate = true) }, signal).catch(
    async (error: unknown) => {
      await restore();
      throw error;
    },
  );
  signal.throwIfAborted();
  const { refusal } = worker;
  const isRunning = standing.found?.is === "running";
  const isSame = refusal?.hash === blueprint.hash && refusal.imageId === imageId;
  const disk = pulling.space();
  const hasRoomAgain = refusal?.code === "disk-full" && disk !== undefined && !isFull(disk);
  if (isRunning && isSame && !hasRoomAgain) throw new HostError(refusal.code ?? "not-started", refusal.reason);
  worker.take({ is: "phase", number: job.number, phase: "creating" });
  await launch(
    launching,
    {
      id,
      survey: await (early === undefined || isLate ? survey(launching, id, signal) : early),
      blueprint,
      imageId,
      isRestart: job.kind === "restart" && standing.found?.hash === blueprint.hash,
      isFresh: spec.execType !== "service",
      stopSeconds: spec.stopTimeSeconds,
      onFellBack(error) {
        // A failing engine proves nothing about the container, and missing conditions may be met later.
        if (error instanceof HostError && ["engine-unwell", "not-startable"].includes(error.code)) return;
        const { hash, limitsHash: limits } = blueprint;
        worker.refusal = { hash, limits, imageId, reason: toError(error).message, code: failureCode(error) };
      },
      ...(attachment === undefined ? {} : { onAttached: attachment.onOutput }),
    },
    signal,
  );
}
