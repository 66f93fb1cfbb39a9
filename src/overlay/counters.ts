import type { ListenerCounters, OverlayReason } from "../protocol/overlay.ts";

interface Moved {
  readonly bytesIn: number;
  readonly bytesOut: number;
}

/** What one listener has counted of the flows that are over. */
export class Counters {
  flows = 0;
  bytesIn = 0;
  bytesOut = 0;
  datagramsDropped = 0;
  readonly #refusals: Partial<Record<OverlayReason, number>> = {};
  readonly #errors: Partial<Record<OverlayReason, number>> = {};

  refused(reason: OverlayReason): void {
    this.#refusals[reason] = (this.#refusals[reason] ?? 0) + 1;
  }

  /** A flow is over: in order without a reason, else failed, or refused when it never reached its target. */
  ended(flow: Moved & { readonly isConnected: boolean }, reason: OverlayReason | undefined): void {
    this.bytesIn += flow.bytesIn;
    this.bytesOut += flow.bytesOut;
    if (reason === undefined) return;
    if (flow.isConnected) this.#errors[reason] = (this.#errors[reason] ?? 0) + 1;
    else this.refused(reason);
  }

  /** With the flows that still run. */
  report(listener: { readonly key: string; readonly connector: string }, running: Iterable<Moved>): ListenerCounters {
    let { bytesIn, bytesOut } = this;
    let activeFlows = 0;
    for (const flow of running) {
      activeFlows += 1;
      bytesIn += flow.bytesIn;
      bytesOut += flow.bytesOut;
    }
    return {
      key: listener.key,
      connector: listener.connector,
      flows: this.flows,
      activeFlows,
      bytesIn,
      bytesOut,
      datagramsDropped: this.datagramsDropped,
      refusals: { ...this.#refusals },
      errors: { ...this.#errors },
    };
  }
}
