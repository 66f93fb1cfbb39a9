import type { Clock } from "../../host/clock.ts";
import type {
  ListenerCounters,
  ListenerState,
  OverlayListener,
  OverlayReason,
} from "../../protocol/overlay/overlay.ts";
import type { BufferPool } from "../flow/buffer-pool.ts";
import type { Dialer } from "../dial/dial.ts";
import type { RemoteRefusals } from "./remote-refusals.ts";
import type { LiveFlows } from "../flow/live-flows.ts";
import type { DataPorts } from "../ftp/data-ports.ts";
import type { NameCache } from "../dial/name-cache.ts";
import type { Dropped } from "../../protocol/overlay/change.ts";
import type { Remote } from "./remote.ts";
import type { SocketBudget } from "../limits/socket-budget.ts";
import type { Shortage } from "../limits/shortage.ts";
import type { PacedStart } from "../limits/paced-start.ts";
import type { Targets } from "./targets.ts";
import type { BindingsOptions } from "../bindings/bindings.ts";
import type { BindingState } from "../bindings/tcp.ts";

/** An entry of the table at work. */
export interface Listener {
  readonly spec: OverlayListener;
  readonly activeFlows: number;
  /** Binds what is not bound; what fails shows in `state`. Never rejects. */
  open(): Promise<void>;
  /** Puts another form of the entry into force, keeping every socket whose address stays. */
  change(spec: OverlayListener, drops: Dropped): Promise<void>;
  /** Ends the flows that lead to a service. */
  dropService(name: string): void;
  /** Closes the sockets but not the flows. */
  stopListening(): Promise<void>;
  /** Ends everything at once. */
  close(): void;
  /** Ends what has been idle for too long; `now` is monotonic. */
  sweep(now: number): void;
  state(): ListenerState;
  report(): ListenerCounters;
}

/** What listeners share. */
export interface ListenerOptions extends BindingsOptions {
  readonly clock: Clock;
  readonly dialer: Dialer;
  readonly names: NameCache;
  readonly targets: Targets;
  readonly budget: SocketBudget;
  /** Which listeners refuse flows because the process or the machine has nothing left for them. */
  readonly shortage: Shortage<Listener>;
  /** What other nodes said of the targets of listeners. */
  readonly remoteRefusals: RemoteRefusals<Listener>;
  readonly pool: BufferPool;
  readonly ports: DataPorts;
  readonly pacedStart: PacedStart;
  readonly flows: LiveFlows;
  /** The way to other nodes, once there is one. */
  readonly remote: () => Remote | undefined;
  /** Called with each new flow. */
  readonly onBusy: () => void;
}

/** How a listener stands, from its bindings and from whatever keeps its flows from succeeding. */
export function stateOf(
  { key, connector }: OverlayListener,
  bindings: readonly { readonly address: string; readonly state: BindingState }[],
  fault: OverlayReason | undefined,
): ListenerState {
  const addresses = bindings.flatMap(({ address, state }) => (state.at === "listening" ? [address] : []));
  for (const { address, state } of bindings) {
    if (state.at !== "failed") continue;
    const message = `${address}: ${state.message}`.slice(0, 1024);
    return { key, connector, state: "failed", reason: state.reason, message, addresses };
  }
  if (fault !== undefined) return { key, connector, state: "failed", reason: fault, addresses };
  return { key, connector, state: "listening", addresses };
}
