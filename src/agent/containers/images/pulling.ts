import type { Logger } from "pino";
import { HostError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { Engine, ImageDetail, PullOptions, PullProgress } from "../../../host/engine/engine.ts";
import type { DiskSpace } from "../../../host/files/files.ts";
import { formatBytes } from "../../../lib/text/durations.ts";
import type { RegistryPlace } from "../../../protocol/documents/registry.ts";
import { failureCode } from "../model/failure-code.ts";
import type { Ledger } from "../model/ledger.ts";
import { runsOn } from "./platform.ts";
import { registryAsked } from "./registry-asked.ts";
import type { Slots } from "../model/slots.ts";
import type { Blueprint } from "../model/wanted.ts";

export interface PullingOptions {
  readonly engine: Pick<Engine, "inspectImage" | "pull">;
  readonly ledger: Pick<Ledger, "images" | "putImage">;
  readonly clock: Clock;
  readonly log: Logger;
  readonly slots: Slots;
  /** Requests a short-lived credential of the node's own registry; rejects quickly if the control plane is unreachable. */
  readonly credential: (repository: string, signal: AbortSignal) => Promise<PullOptions["credential"]>;
  /** The registry of the node's own organization. */
  readonly registry?: () => RegistryPlace | undefined;
  /** Free space of the disk that holds the engine's images. */
  readonly space: () => DiskSpace | undefined;
  /** Platform of the machine, as `platformOf` writes it. */
  readonly platform: (signal: AbortSignal) => Promise<string>;
}

export interface PullRequest {
  readonly image: Blueprint["image"];
  /** True if a local image suffices: the start only revives an ended container. */
  readonly isLocalEnough: boolean;
  /** Called before a registry is asked. */
  readonly onAsking?: () => void;
  /** Called if the registry did not answer and the local image is used. */
  readonly onUnasked?: (reason: string) => void;
  /** Called if the pull takes longer than a moment. */
  readonly onPulling: () => void;
  readonly onProgress: (progress: PullProgress) => void;
}

/** Minimum free space for a pull, in bytes. */
const MIN_FREE_BYTES = 64 * 1024 * 1024;
/** Time after which a silent registry is given up if a local image exists. */
const SILENCE_MS = 15_000;
/** Time limit of a pull, so that a slow registry does not block a slot indefinitely. */
const LONGEST_MS = 6 * 3_600_000;
const CHECK_MS = 2000;
const USED_STEP_MS = 3_600_000;

/**
 * Ensures that the machine has a definition's image, the newest of its tag for this platform. Returns its id.
 * @throws {HostError} `disk-full`, `image-platform` (it is for another platform), `pull-failed`; otherwise as the engine.
 */
export async function ensureImage(options: PullingOptions, request: PullRequest, signal: AbortSignal): Promise<string> {
  const { engine, ledger, clock, log } = options;
  const { image } = request;
  const local = await engine.inspectImage(image.reference, signal);
  const platform = await options.platform(signal);
  const isUsable = local !== undefined && runsOn(local.platform, platform);
  if (isUsable && (request.isLocalEnough || image.isPinned)) return note(local);
  request.onAsking?.();
  let asked = "";
  const onAsked = (text: string): void => void (asked = ` (${text})`);
  try {
    await fetch(options, request, { platform, hasLocal: isUsable, onAsked }, signal);
  } catch (error) {
    signal.throwIfAborted();
    const { message } = toError(error);
    const reason = pullReason(image.reference, message) + (isAboutRegistry(error) ? asked : "");
    if (isUnwell(error)) throw error;
    if (!isUsable) {
      if (error instanceof HostError && error.code === "disk-full") throw error;
      const code = local === undefined ? (failureCode(error) ?? "pull-failed") : "image-platform";
      const lead = local === undefined ? "" : `${otherPlatform(local, platform)}; `;
      throw new HostError(code, `${lead}pull of ${image.reference} failed: ${reason}`, { cause: error });
    }
    log.warn(
      { image: image.reference, reason: message + asked },
      "the registry was not asked; the image that is there is used",
    );
    request.onUnasked?.(reason);
    return note(local);
  }
  const fetched = await engine.inspectImage(image.reference, signal);
  if (fetched === undefined) throw new HostError("pull-failed", `pull of ${image.reference} ended without an image`);
  const id = note(fetched);
  if (!runsOn(fetched.platform, platform)) throw new HostError("image-platform", otherPlatform(fetched, platform));
  return id;

  function otherPlatform({ platform: other = "" }: ImageDetail, own: string): string {
    return `image ${image.reference} is for ${other} and this machine is ${own}: publish it for ${own}`;
  }

  function note({ id }: ImageDetail): string {
    const known = ledger.images.get(id);
    const now = clock.now();
    // Only images pulled for a definition are removed later.
    const isOurs = known !== undefined || local?.id !== id;
    if (isOurs && (known === undefined || now - known.usedAt > USED_STEP_MS)) {
      ledger.putImage({ id, reference: image.reference, usedAt: now });
    }
    return id;
  }
}

/** Reports whether the disk of the engine has no room for a layer. */
export function isFull({ freeBytes }: DiskSpace): boolean {
  return freeBytes < MIN_FREE_BYTES;
}

/** Returns why a pull failed in one sentence, without the repetitions of registry, engine and client. Pure. */
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
  {
    platform,
    hasLocal,
    onAsked,
  }: {
    readonly platform: string;
    readonly hasLocal: boolean;
    /** Called with the registry and the credential. */
    readonly onAsked: (text: string) => void;
  },
  signal: AbortSignal,
): Promise<void> {
  const { engine, clock, slots, credential, space } = options;
  // A check for a newer image is quick; longer pulls run outside the pass.
  const cancelPulling = clock.after(hasLocal ? CHECK_MS : 0, onPulling);
  await slots
    .run(signal, async () => {
      const disk = space();
      if (disk !== undefined && isFull(disk)) {
        throw new HostError(
          "disk-full",
          `no room for an image: ${formatBytes(disk.freeBytes)} are free on the disk of the container engine; free space on it`,
        );
      }
      const patience = new AbortController();
      let cancelSilence = (): void => undefined;
      const wait = (): void => {
        cancelSilence();
        if (!hasLocal) return;
        cancelSilence = clock.after(SILENCE_MS, () =>
          patience.abort(new HostError("timeout", "the registry says nothing")),
        );
      };
      wait();
      const cancelEnd = clock.after(LONGEST_MS, () =>
        patience.abort(new HostError("timeout", "it was not done after 6 hours")),
      );
      try {
        const both = AbortSignal.any([signal, patience.signal]);
        const given = image.isFromRegistry ? await credential(image.repository, both) : undefined;
        // The registry may differ from the one in the reference.
        const known = given !== undefined && image.reference.startsWith(`${given.server}/`) ? given : undefined;
        const about = { given: given?.server, isUsed: known !== undefined };
        onAsked(registryAsked(image, options.registry?.(), about));
        await engine.pull(
          image.reference,
          {
            platform,
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
        cancelSilence();
        cancelEnd();
      }
    })
    .finally(cancelPulling);
}

/** Reports whether a failure may be due to the registry or the credential. */
function isAboutRegistry(error: unknown): boolean {
  const others: ReadonlySet<string> = new Set(["disk-full", "pull-no-space", "image-platform", "pull-rate-limited"]);
  return !(error instanceof HostError && others.has(error.code));
}

function isUnwell(error: unknown): boolean {
  return error instanceof HostError && error.code === "engine-unwell";
}
