import type { Clock } from "../host/clock.ts";
import type { OverlayFlow } from "../protocol/overlay.ts";

/** Records of ended flows, kept until somebody takes them; the oldest are lost first. */
export interface FlowLog {
  add(flow: OverlayFlow): void;
  /** Who takes batches from now on; undefined when nobody does. */
  deliverTo(taker: ((flows: OverlayFlow[]) => void) | undefined): void;
  /** Hands over everything at once. */
  flush(): void;
  readonly dropped: number;
}

const MAX_FLOWS = 10_000;
const BATCH = 500;
const BATCH_MS = 1000;

export function flowLog(clock: Clock): FlowLog {
  let waiting: OverlayFlow[] = [];
  let first = 0;
  let dropped = 0;
  let taker: ((flows: OverlayFlow[]) => void) | undefined;
  let cancel: (() => void) | undefined;

  const flush = (): void => {
    cancel?.();
    cancel = undefined;
    if (taker === undefined) return;
    for (; first < waiting.length; first += BATCH) taker(waiting.slice(first, first + BATCH));
    waiting = [];
    first = 0;
  };
  const arm = (): void => {
    if (taker === undefined || waiting.length === first) return;
    if (waiting.length - first >= BATCH) flush();
    else cancel ??= clock.after(BATCH_MS, flush);
  };
  return {
    add(flow) {
      waiting.push(flow);
      if (waiting.length - first > MAX_FLOWS) {
        first += 1;
        dropped += 1;
        // Shifting an array of this length for every flow would cost more than the flow.
        if (first >= MAX_FLOWS) {
          waiting = waiting.slice(first);
          first = 0;
        }
      }
      arm();
    },
    deliverTo(next) {
      taker = next;
      if (next === undefined) {
        cancel?.();
        cancel = undefined;
      }
      arm();
    },
    flush,
    get dropped() {
      return dropped;
    },
  };
}
