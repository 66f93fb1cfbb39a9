import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Checkpoint } from "../../checkpoint/checkpoint.ts";
import type { RestoreReason, Window } from "../../checkpoint/window.ts";

export interface EndingOptions {
  readonly checkpoint: Checkpoint;
  readonly log: Logger;
}

/** The decision to take a trial back: whatever cuts the restore short, it is taken up again and not the trial. */
export class Ending {
  readonly #options: EndingOptions;
  #decided: { readonly id: string; readonly reason: RestoreReason } | undefined;

  constructor(options: EndingOptions) {
    this.#options = options;
  }

  /** Whether what is pending is being taken back. */
  get isDecided(): boolean {
    return this.#decided !== undefined && this.#decided.id === this.#options.checkpoint.pending?.id;
  }

  /** Decides it, in memory where the disk takes nothing. What was decided before stays. */
  async decide(id: string, window: Window, reason: RestoreReason): Promise<void> {
    if (window.state !== "awaiting-keep" || this.isDecided) return;
    this.#decided = { id, reason };
    const { checkpoint, log } = this.#options;
    await checkpoint.setWindow({ ...window, ending: reason }).catch((error: unknown) => {
      log.warn({ err: toError(error) }, "not saved");
    });
  }

  /** The window that is pending, with what was decided about it. */
  of(window: Window): Window {
    return this.isDecided ? { ...window, ending: this.#decided?.reason } : window;
  }
}
