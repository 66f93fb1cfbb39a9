import type { ListenerCounters, OverlayReason } from "../../protocol/overlay/overlay.ts";

interface Counted {
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly isConnected: boolean;
}

/** Counts the ended flows of one listener. */
export class Counters {
  /** Flows that were not refused. */
  #flows = 0;
  bytesIn = 0;
  bytesOut = 0;
  datagramsDropped = 0;
  readonly #refusals: Partial<Record<OverlayReason, number>> = {};
  readonly #errors: Partial<Record<OverlayReason, number>> = {};

  refused(reason: OverlayReason): void {
    this.#refusals[reason] = (this.#refusals[reason] ?? 0) + 1;
  }

  /** Counts an ended flow: without a reason it ended in order; else it failed, or was refused if it never reached its target. */
  ended(flow: Counted, reason: OverlayReason | undefined): void {
    this.bytesIn += flow.bytesIn;
    this.bytesOut += flow.bytesOut;
    if (reason === undefined || flow.isConnected) this.#flows += 1;
    if (reason === undefined) return;
    if (flow.isConnected) this.#errors[reason] = (this.#errors[reason] ?? 0) + 1;
    else this.refused(reason);
  }

  /** Includes running flows. Those that have not reached their target may still be refused. */
  report(listener: { readonly key: string; readonly connector: string }, running: Iterable<Counted>): ListenerCounters {
    let { bytesIn, bytesOut } = this;
    let flows = this.#flows;
    let activeFlows = 0;
    for (const flow of running) {
      activeFlows += 1;
      if (flow.isConnected) flows += 1;
      bytesIn += flow.bytesIn;
      bytesOut += flow.bytesOut;
    }
    return {
      key: listener.key,
      connector: listener.connector,
      flows,
      activeFlows,
      bytesIn,
      bytesOut,
      datagramsDropped: this.datagramsDropped,
      refusals: { ...this.#refusals },
      errors: { ...this.#errors },
    };
  }
}
