import type { Clock } from "../../host/clock.ts";
import type {
  ListenerCounters,
  ListenerState,
  OverlayListener,
  OverlayReason,
} from "../../protocol/overlay/overlay.ts";
import type { BufferPool } from "../flow/read-buffer.ts";
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

/** A listener of the table in operation. */
export interface Listener {
  readonly spec: OverlayListener;
  readonly activeFlows: number;
  /** Binds the sockets that are not bound; failures show in `state`. Never rejects. */
  open(): Promise<void>;
  /** Applies a changed entry and keeps every socket whose address stays. */
  change(spec: OverlayListener, drops: Dropped): Promise<void>;
  /** Ends the flows to a service. */
  dropService(name: string): void;
  /** Closes the sockets but not the flows. */
  stopListening(): Promise<void>;
  /** Closes sockets and flows immediately. */
  close(): void;
  /** Ends flows idle for too long; `now` is monotonic, in milliseconds. */
  sweep(now: number): void;
  state(): ListenerState;
  report(): ListenerCounters;
}

/** Dependencies that all listeners share. */
export interface ListenerOptions extends BindingsOptions {
  readonly clock: Clock;
  readonly dialer: Dialer;
  readonly names: NameCache;
  readonly targets: Targets;
  readonly budget: SocketBudget;
  /** Listeners that refuse flows because the process or the machine is out of resources. */
  readonly shortage: Shortage<Listener>;
  /** Reasons why other nodes refuse the flows of listeners. */
  readonly remoteRefusals: RemoteRefusals<Listener>;
  readonly pool: BufferPool;
  readonly ports: DataPorts;
  readonly pacedStart: PacedStart;
  readonly flows: LiveFlows;
  /** Returns the connection to other nodes, once there is one. */
  readonly remote: () => Remote | undefined;
  /** Called with each new flow. */
  readonly onBusy: () => void;
}

/** Derives a listener's state from its bindings and from the fault that makes its flows fail. */
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
