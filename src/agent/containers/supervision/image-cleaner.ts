import type { Logger } from "pino";
import { HostError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { DiskSpace } from "../../../host/files/files.ts";
import { isShort, unusedImages } from "../images/image-cleanup.ts";
import type { Supervisor } from "./supervisor.ts";
import type { Ledger } from "../model/ledger.ts";

export interface ImageCleanerOptions {
  readonly supervisor: Pick<Supervisor, "engine" | "engineStanding" | "info" | "workers" | "onChange">;
  readonly ledger: Ledger;
  readonly clock: Clock;
  readonly log: Logger;
  readonly space: (path: string) => DiskSpace | undefined;
}

const EVERY_MS = 600_000;
const CALL_MS = 60_000;

/** Removes unused images that were pulled for definitions while disk space is low. */
export class ImageCleaner {
  readonly #options: ImageCleanerOptions;
  readonly #ending = new AbortController();
  #cancelTimer: (() => void) | undefined;

  constructor(options: ImageCleanerOptions) {
    this.#options = options;
    // Before the first container there is nothing to clean.
    options.supervisor.onChange(() => this.#arm());
  }

  close(): void {
    this.#ending.abort(new HostError("cancelled", "the agent is stopping"));
    this.#cancelTimer?.();
  }

  #arm(): void {
    if (this.#cancelTimer !== undefined || this.#ending.signal.aborted || this.#options.ledger.images.size === 0)
      return;
    this.#cancelTimer = this.#options.clock.after(EVERY_MS, () => {
      void this.#clean()
        .catch((error: unknown) => this.#options.log.warn({ err: toError(error) }, "unused images stay"))
        .finally(() => {
          this.#cancelTimer = undefined;
          this.#arm();
        });
    });
  }

  async #clean(): Promise<void> {
    const { supervisor, ledger, clock, space, log } = this.#options;
    const root = supervisor.info?.rootDirectory;
    if (root === undefined || supervisor.engineStanding.state !== "well" || !isShort(space(root))) return;
    const { engine } = supervisor;
    const signal = AbortSignal.any([this.#ending.signal, AbortSignal.timeout(CALL_MS)]);
    const images = await engine.listImages(signal);
    const containers = await engine.listContainers([], signal);
    const used = {
      references: new Set(
        [...supervisor.workers.values()].flatMap(({ wanted }) => wanted?.blueprint?.image.reference ?? []),
      ),
      ids: new Set(containers.map(({ imageId }) => imageId)),
    };
    for (const { id, reference } of unusedImages(ledger.images.values(), images, used, clock.now())) {
      try {
        await engine.removeImage(id, signal);
      } catch (error) {
        signal.throwIfAborted();
        // Continue with the others.
        log.warn({ image: reference, err: toError(error) }, "an unused image stays");
        continue;
      }
      ledger.dropImage(id);
      log.info({ image: reference }, "an unused image was removed");
      if (!isShort(space(root))) return;
    }
    const there = new Set(images.map(({ id }) => id));
    for (const { id } of ledger.images.values()) if (!there.has(id)) ledger.dropImage(id);
  }
}
