import type { Clock } from "../host/clock.ts";
import type {
  ListenerCounters,
  ListenerState,
  OverlayListener,
  OverlayReason,
  OverlayService,
  OverlayTable,
  ServiceHealth,
} from "../protocol/overlay/overlay.ts";
import { bufferPool } from "./flow/read-buffer.ts";
import { Dialer } from "./dial/dial.ts";
import { askRemote, remoteRefusals, type RemoteRefusals } from "./listeners/remote-refusals.ts";
import type { FlowLog } from "./flow/flow-log.ts";
import { DataPorts } from "./ftp/data-ports.ts";
import { healthChecks, type HealthChecks } from "./health.ts";
import { LiveFlows } from "./flow/live-flows.ts";
import type { Listener, ListenerOptions } from "./listeners/listener.ts";
import { nameCache, type AskName } from "./dial/name-cache.ts";
import { ownSockets, type OwnSockets } from "./dial/own-sockets.ts";
import { EMPTY_TABLE, planTable, type TableStep } from "./plan-table.ts";
import type { Remote } from "./listeners/remote.ts";
import { shortage, type Shortage } from "./limits/shortage.ts";
import { socketBudget } from "./limits/socket-budget.ts";
import { pacedStart } from "./limits/paced-start.ts";
import { targetsOf } from "./listeners/targets.ts";
import { SOCKETS_PER_ADDRESS } from "./bindings/tcp.ts";
import { SOCKETS_PER_FLOW, TcpListener } from "./tcp/listener.ts";
import { UdpListener } from "./udp/listener.ts";

export interface DataPlaneOptions {
  readonly clock: Clock;
  readonly askName: AskName;
  readonly localAddresses: () => readonly string[];
  /** Descriptor limit of the process. */
  readonly descriptorLimit: number;
  readonly flows: FlowLog;
  /** Called once, with the first flow. */
  readonly onFirstFlow: () => void;
  readonly onListeners: (changed: readonly ListenerState[]) => void;
  readonly onServices: (changed: readonly ServiceHealth[]) => void;
}

const SWEEP_MS = 1000;
const RETRY_MS = 5000;

/** Applies the table: opens listeners, checks services, and carries the flows between them. */
export class DataPlane {
  /** Running flows, of listeners and from other nodes. */
  readonly flows: LiveFlows;
  readonly #options: DataPlaneOptions;
  readonly #listeners = new Map<string, Listener>();
  readonly #services = new Map<string, OverlayService>();
  readonly #own: OwnSockets;
  readonly #health: HealthChecks;
  readonly #names: ReturnType<typeof nameCache>;
  readonly #shortage: Shortage<Listener>;
  readonly #remoteRefusals: RemoteRefusals<Listener>;
  readonly #listenerOptions: ListenerOptions;
  #beside: ReadonlySet<string> = new Set();
  #table: OverlayTable = EMPTY_TABLE;
  #reported = new Map<string, string>();
  #cancelSweep: (() => void) | undefined;
  #cancelRetry: (() => void) | undefined;
  #isDraining = false;
  #hadFlows = false;
  #remote: Remote | undefined;

  constructor(options: DataPlaneOptions) {
    const { clock } = options;
    this.#options = options;
    this.flows = new LiveFlows(clock, options.flows);
    this.#own = ownSockets(options.localAddresses);
    this.#names = nameCache(clock, options.askName);
    const dialer = new Dialer({ clock, names: this.#names, own: this.#own });
    this.#health = healthChecks(clock, dialer, options.onServices);
    const budget = socketBudget(options.descriptorLimit, () => this.#own.size * SOCKETS_PER_ADDRESS);
    this.#shortage = shortage({
      clock,
      hasRoom: () => budget.hasRoom(SOCKETS_PER_FLOW),
      onChanged: () => this.#reportListeners(),
    });
    this.#remoteRefusals = remoteRefusals({
      clock,
      ask: (listener) => this.#ask(listener),
      onChanged: () => this.#reportListeners(),
    });
    this.#listenerOptions = {
      clock,
      dialer,
      names: this.#names,
      targets: targetsOf(this.#services, (name) => this.#health.isDown(name), this.#own),
      own: this.#own,
      budget,
      shortage: this.#shortage,
      remoteRefusals: this.#remoteRefusals,
      pool: bufferPool(),
      ports: new DataPorts(clock, this.#own, () => budget.hasRoom(1 + SOCKETS_PER_FLOW)),
      pacedStart: pacedStart(clock),
      flows: this.flows,
      remote: () => this.#remote,
      isBeside: (protocol, address, port) => this.#beside.has(`${protocol} ${address} ${port}`),
      onBusy: () => this.#busy(),
    };
  }

  get activeFlows(): number {
    let flows = this.#remote?.activeFlows ?? 0;
    for (const listener of this.#listeners.values()) flows += listener.activeFlows;
    return flows;
  }

  /** Dependencies of flows from other nodes. */
  get local(): ListenerOptions {
    return this.#listenerOptions;
  }

  /** Sets the connection to other nodes; without it, listeners with a target there refuse every flow. */
  connectTo(remote: Remote): void {
    this.#remote = remote;
  }

  /** Applies a table; resolves when every listener is bound or has failed. Calls must not overlap. */
  async apply(table: OverlayTable): Promise<void> {
    const steps = planTable(this.#table, table);
    this.#table = table;
    await Promise.all(steps.map((step) => this.#take(step)));
    this.#health.watch(table.services);
    this.#names.keepOnly(new Set(table.services.map(({ host }) => host)));
    await this.#retry();
  }

  /** Sets the sockets that a predecessor listens on; this process shares their ports. */
  shareWith(bound: readonly { readonly protocol: string; readonly address: string; readonly port: number }[]): void {
    this.#beside = new Set(bound.map(({ protocol, address, port }) => `${protocol} ${address} ${port}`));
  }

  /** Retries failed binds. */
  retryNow(): Promise<void> {
    return this.#retry();
  }

  /** Stops accepting; running flows continue. */
  async stopListening(): Promise<void> {
    this.#isDraining = true;
    this.#cancelRetry?.();
    this.#health.close();
    this.#remoteRefusals.close();
    await Promise.all([...this.#listeners.values()].map((listener) => listener.stopListening()));
  }

  close(): void {
    this.#isDraining = true;
    this.#cancelSweep?.();
    this.#cancelRetry?.();
    this.#health.close();
    for (const listener of this.#listeners.values()) listener.close();
    this.#listenerOptions.ports.close();
    this.flows.close();
    this.#shortage.close();
    this.#remoteRefusals.close();
    this.#listeners.clear();
  }

  listeners(): ListenerState[] {
    return [...this.#listeners.values()].map((listener) => listener.state());
  }

  counters(): ListenerCounters[] {
    return [...this.#listeners.values()].map((listener) => listener.report());
  }

  services(): ServiceHealth[] {
    return [...this.#health.list()];
  }

  bound(): ReturnType<OwnSockets["list"]> {
    return this.#own.list();
  }

  async #take(step: TableStep): Promise<void> {
    switch (step.kind) {
      case "close":
        this.#listeners.get(step.key)?.close();
        this.#listeners.delete(step.key);
        return;
      case "drop-service":
        this.#services.delete(step.name);
        this.#dropService(step.name);
        return;
      case "set-service":
        this.#services.set(step.service.name, step.service);
        if (step.dropsFlows) this.#dropService(step.service.name);
        return;
      case "change": {
        const listener = this.#listeners.get(step.from);
        if (listener === undefined) return;
        this.#listeners.delete(step.from);
        this.#listeners.set(step.listener.key, listener);
        return listener.change(step.listener, step.drops);
      }
      case "open": {
        const listener = this.#build(step.listener);
        this.#listeners.set(step.listener.key, listener);
        return listener.open();
      }
    }
  }

  #build(spec: OverlayListener): Listener {
    return spec.protocol === "udp"
      ? new UdpListener(spec, this.#listenerOptions)
      : new TcpListener(spec, this.#listenerOptions);
  }

  #dropService(name: string): void {
    for (const listener of this.#listeners.values()) listener.dropService(name);
    this.#remote?.dropService(name);
  }

  async #retry(): Promise<void> {
    if (this.#isDraining) return;
    const failed = [...this.#listeners.values()].filter((listener) => listener.state().state === "failed");
    await Promise.all(failed.map((listener) => listener.open()));
    this.#reportListeners();
    if (failed.length === 0 || this.#isDraining) return;
    this.#cancelRetry?.();
    this.#cancelRetry = this.#options.clock.after(RETRY_MS, () => void this.#retry());
  }

  async #ask({ spec }: Listener): Promise<OverlayReason | undefined> {
    const target = this.#listenerOptions.targets.find(spec);
    if (typeof target === "string" || !("peer" in target) || this.#remote === undefined) return "no-path";
    return askRemote(this.#options.clock, this.#remote, spec, target);
  }

  #reportListeners(): void {
    const states = this.listeners();
    const changed = states.filter((state) => this.#reported.get(state.key) !== JSON.stringify(state));
    this.#reported = new Map(states.map((state) => [state.key, JSON.stringify(state)]));
    if (changed.length > 0) this.#options.onListeners(changed);
  }

  #busy(): void {
    if (!this.#hadFlows) this.#options.onFirstFlow();
    this.#hadFlows = true;
    this.#armSweep();
  }

  #armSweep(): void {
    this.#cancelSweep ??= this.#options.clock.after(SWEEP_MS, () => {
      this.#cancelSweep = undefined;
      const now = this.#options.clock.elapsed();
      for (const listener of this.#listeners.values()) listener.sweep(now);
      this.#remote?.sweep(now);
      if (this.activeFlows > 0) this.#armSweep();
    });
  }
}
