import type { Clock } from "../../host/clock.ts";
import type { OverlayFlow } from "../../protocol/overlay/overlay.ts";

/** Buffers the records of ended flows until a subscriber receives them. Drops the oldest records first. */
export interface FlowLog {
  /** Adds a record, or what `agreed` resolves to; `agreed` never rejects. */
  add(flow: OverlayFlow, agreed?: Promise<OverlayFlow>): void;
  /** Sets the receiver of batches; undefined buffers them. */
  deliverTo(subscriber: ((flows: OverlayFlow[]) => void) | undefined): void;
  /** Delivers all complete records. */
  flush(): void;
  /** Delivers all records in their current form. */
  close(): void;
  readonly dropped: number;
}

const MAX_FLOWS = 10_000;
const BATCH = 500;
const BATCH_MS = 1000;

export function flowLog(clock: Clock): FlowLog {
  let waiting: OverlayFlow[] = [];
  let first = 0;
  let dropped = 0;
  let subscriber: ((flows: OverlayFlow[]) => void) | undefined;
  let cancel: (() => void) | undefined;
  const unsettled = new Set<OverlayFlow>();

  const flush = (): void => {
    cancel?.();
    cancel = undefined;
    if (subscriber === undefined) return;
    for (; first < waiting.length; first += BATCH) subscriber(waiting.slice(first, first + BATCH));
    waiting = [];
    first = 0;
  };
  const arm = (): void => {
    if (subscriber === undefined || waiting.length === first) return;
    if (waiting.length - first >= BATCH) flush();
    else cancel ??= clock.after(BATCH_MS, flush);
  };
  const push = (flow: OverlayFlow): void => {
    waiting.push(flow);
    if (waiting.length - first > MAX_FLOWS) {
      first += 1;
      dropped += 1;
      // Shifting a long array for every flow would cost more than the flow.
      if (first >= MAX_FLOWS) {
        waiting = waiting.slice(first);
        first = 0;
      }
    }
    arm();
  };
  return {
    add(flow, agreed) {
      if (agreed === undefined || unsettled.size >= MAX_FLOWS) return push(flow);
      unsettled.add(flow);
      void agreed.then((record) => {
        if (unsettled.delete(flow)) push(record);
      });
    },
    deliverTo(next) {
      subscriber = next;
      if (next === undefined) {
        cancel?.();
        cancel = undefined;
      }
      arm();
    },
    flush,
    close() {
      for (const flow of unsettled) push(flow);
      unsettled.clear();
      flush();
    },
    get dropped() {
      return dropped;
    },
  };
}
