import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Checkpoint } from "../../checkpoint/checkpoint.ts";
import type { RestoreReason, Window } from "../../checkpoint/window.ts";

export interface RollbackDecisionOptions {
  readonly checkpoint: Checkpoint;
  readonly log: Logger;
}

/** The decision to roll a trial back. An interrupted restore continues with the rollback, not with the trial. */
export class RollbackDecision {
  readonly #options: RollbackDecisionOptions;
  #decided: { readonly id: string; readonly reason: RestoreReason } | undefined;

  constructor(options: RollbackDecisionOptions) {
    this.#options = options;
  }

  /** True if the pending change is being rolled back. */
  get isDecided(): boolean {
    return this.#decided !== undefined && this.#decided.id === this.#options.checkpoint.pending?.id;
  }

  /** Stores the decision, in memory if the disk refuses. An earlier decision stays. */
  async decide(id: string, window: Window, reason: RestoreReason): Promise<void> {
    if (window.state !== "awaiting-keep" || this.isDecided) return;
    this.#decided = { id, reason };
    const { checkpoint, log } = this.#options;
    await checkpoint.setWindow({ ...window, ending: reason }).catch((error: unknown) => {
      log.warn({ err: toError(error) }, "not saved");
    });
  }

  /** Returns the pending window with the decision, if there is one. */
  of(window: Window): Window {
    return this.isDecided ? { ...window, ending: this.#decided?.reason } : window;
  }
}
