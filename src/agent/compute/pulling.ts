import type { Logger } from "pino";
import { HostError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { Engine, ImageDetail, PullOptions, PullProgress } from "../../host/engine/engine.ts";
import type { DiskSpace } from "../../host/files.ts";
import { formatBytes } from "../../lib/durations.ts";
import type { Ledger } from "./ledger.ts";
import type { Slots } from "./slots.ts";
import type { Blueprint } from "./wanted.ts";

export interface PullingOptions {
  readonly engine: Pick<Engine, "inspectImage" | "pull">;
  readonly ledger: Pick<Ledger, "images" | "putImage">;
  readonly clock: Clock;
  readonly log: Logger;
  readonly slots: Slots;
  /** Asks for a short-lived credential of the node's own registry; rejects soon when nobody can be asked. */
  readonly credential: (repository: string, signal: AbortSignal) => Promise<PullOptions["credential"]>;
  /** Of the disk that holds the engine's images. */
  readonly space: () => DiskSpace | undefined;
}

export interface PullRequest {
  readonly image: Blueprint["image"];
  /** What is there is good enough: what had ended is only brought back. */
  readonly isLocalEnough: boolean;
  /** What is there is not enough: a registry is about to be asked. */
  readonly onAsking?: () => void;
  /** The registry did not answer, and the image that is here is used. */
  readonly onUnasked?: (reason: string) => void;
  /** That takes longer than a moment. */
  readonly onPulling: () => void;
  readonly onProgress: (progress: PullProgress) => void;
}

const PLATFORM = "linux/amd64";
/** With less than this no layer is begun. */
const MIN_FREE_BYTES = 64 * 1024 * 1024;
/** A registry that says nothing for so long is not waited for when there is an image. */
const SILENCE_MS = 15_000;
/** A registry that dribbles does not hold one of the few places for ever. */
const LONGEST_MS = 6 * 3_600_000;
const CHECK_MS = 2000;
const USED_STEP_MS = 3_600_000;

/**
 * Has the image of a definition on the machine, the newest that the registry has of its tag. Gives its id.
 * @throws {HostError} `disk-full`, `pull-failed`, or of the engine.
 */
export async function ensureImage(options: PullingOptions, request: PullRequest, signal: AbortSignal): Promise<string> {
  const { engine, ledger, clock, log } = options;
  const { image } = request;
  const local = await engine.inspectImage(image.reference, signal);
  if (local !== undefined && (request.isLocalEnough || image.isPinned)) return note(local);
  request.onAsking?.();
  try {
    await fetch(options, request, local !== undefined, signal);
  } catch (error) {
    signal.throwIfAborted();
    const { message } = toError(error);
    if (isUnwell(error)) throw error;
    if (local === undefined) {
      if (error instanceof HostError && error.code === "disk-full") throw error;
      const reason = pullReason(image.reference, message);
      throw new HostError("pull-failed", `pull of ${image.reference} failed: ${reason}`, { cause: error });
    }
    log.warn(
      { image: image.reference, reason: message },
      "the registry was not asked; the image that is there is used",
    );
    request.onUnasked?.(pullReason(image.reference, message));
    return note(local);
  }
  const fetched = await engine.inspectImage(image.reference, signal);
  if (fetched !== undefined) return note(fetched);
  throw new HostError("pull-failed", `pull of ${image.reference} ended without an image`);

  function note({ id }: ImageDetail): string {
    const known = ledger.images.get(id);
    const now = clock.now();
    // Only what was fetched for a definition is ever removed again.
    const isOurs = known !== undefined || local?.id !== id;
    if (isOurs && (known === undefined || now - known.usedAt > USED_STEP_MS)) {
      ledger.putImage({ id, reference: image.reference, usedAt: now });
    }
    return id;
  }
}

/** Why a pull failed, in one sentence: registry, engine and client each repeat what the one before has said. Pure. */
export function pullReason(reference: string, message: string): string {
  const lead = `cannot pull ${reference}: `;
  const said = message.startsWith(lead) ? message.slice(lead.length) : message;
  const parts = said
    .replaceAll(/\s+/g, " ")
    .trim()
    .split(/: (?=\S)/);
  const kept = parts.filter((part, at) => {
    const plain = part.toLowerCase();
    const isSaidBefore = parts.slice(0, at).some((other) => other.toLowerCase().includes(plain));
    const isSaidBetter = parts.slice(at + 1).some((other) => ` ${other.toLowerCase()} `.includes(` ${plain} `));
    return !isSaidBefore && (!isSaidBetter || parts.slice(at + 1).some((other) => other.toLowerCase() === plain));
  });
  return kept.join(": ");
}

async function fetch(
  options: PullingOptions,
  { image, onPulling, onProgress }: PullRequest,
  hasLocal: boolean,
  signal: AbortSignal,
): Promise<void> {
  const { engine, clock, slots, credential, space } = options;
  // To hear that nothing is newer takes a moment; whatever takes longer is no part of a pass.
  const takeBackPulling = clock.after(hasLocal ? CHECK_MS : 0, onPulling);
  await slots
    .run(signal, async () => {
      const free = space()?.freeBytes;
      if (free !== undefined && free < MIN_FREE_BYTES) {
        throw new HostError("disk-full", `no room for an image: ${formatBytes(free)} are free`);
      }
      const patience = new AbortController();
      let takeBack = (): void => undefined;
      const wait = (): void => {
        takeBack();
        if (!hasLocal) return;
        takeBack = clock.after(SILENCE_MS, () => patience.abort(new HostError("timeout", "the registry says nothing")));
      };
      wait();
      const takeBackEnd = clock.after(LONGEST_MS, () =>
        patience.abort(new HostError("timeout", "it was not done after 6 hours")),
      );
      try {
        const both = AbortSignal.any([signal, patience.signal]);
        const given = image.isFromRegistry ? await credential(image.repository, both) : undefined;
        // The registry may be another by now than the one that the reference names.
        const known = given !== undefined && image.reference.startsWith(`${given.server}/`) ? given : undefined;
        await engine.pull(
          image.reference,
          {
            platform: PLATFORM,
            credential: known,
            onProgress: (progress) => {
              wait();
              if (progress.layer !== undefined && progress.current !== undefined) onPulling();
              onProgress(progress);
            },
          },
          both,
        );
      } finally {
        takeBack();
        takeBackEnd();
      }
    })
    .finally(takeBackPulling);
}

function isUnwell(error: unknown): boolean {
  return error instanceof HostError && error.code === "engine-unwell";
}
