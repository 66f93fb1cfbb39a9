import type { Socket } from "node:net";
import type { ListenerCounters, ListenerState, OverlayListener, OverlayReason } from "../protocol/overlay.ts";
import { Counters } from "./counters.ts";
import { Gate } from "./gate.ts";
import { flowRecord, stateOf, type Listener, type ListenerOptions } from "./listener.ts";
import type { Dropped } from "./plan-table.ts";
import { sourceFilter, type SourceFilter } from "./source-filter.ts";
import { TcpBinding, type BindingUser } from "./tcp-binding.ts";
import { TcpFlow } from "./tcp-flow.ts";

const SOCKETS_PER_FLOW = 2;

/** A TCP entry of the table at work: its sockets, its flows, its limits and what it has counted. */
export class TcpListener implements Listener, BindingUser {
  readonly #options: ListenerOptions;
  readonly #bindings = new Map<string, TcpBinding>();
  readonly #flows = new Set<TcpFlow>();
  readonly #counters = new Counters();
  readonly #gates: { readonly in: Gate; readonly out: Gate };
  #spec: OverlayListener;
  #filter: SourceFilter;

  constructor(spec: OverlayListener, options: ListenerOptions) {
    this.#spec = spec;
    this.#options = options;
    this.#filter = sourceFilter(spec.sources);
    this.#gates = {
      in: new Gate(options.clock, spec.bitsPerSecond),
      out: new Gate(options.clock, spec.bitsPerSecond),
    };
  }

  get spec(): OverlayListener {
    return this.#spec;
  }

  get activeFlows(): number {
    return this.#flows.size;
  }

  async open(): Promise<void> {
    for (const address of this.#spec.addresses) {
      if (!this.#bindings.has(address)) this.#bindings.set(address, new TcpBinding(address, this.#spec.port, this));
    }
    const { own, isBeside } = this.#options;
    const opened = [...this.#bindings.values()].map(async (binding) => {
      await binding.open(isBeside("tcp", binding.address, binding.port));
      if (binding.state.at === "listening") own.add("tcp", binding.address, binding.port);
    });
    await Promise.all(opened);
  }

  async change(spec: OverlayListener, drops: Dropped): Promise<void> {
    const isMoved = spec.port !== this.#spec.port;
    this.#spec = spec;
    this.#filter = sourceFilter(spec.sources);
    this.#gates.in.setRate(spec.bitsPerSecond);
    this.#gates.out.setRate(spec.bitsPerSecond);
    for (const [address, binding] of this.#bindings) {
      if (isMoved || !spec.addresses.includes(address)) this.#closeBinding(binding);
    }
    if (drops === "all") this.#abort(() => true, "removed");
    if (drops === "forbidden") this.#abort((flow) => !this.#filter.allows(flow.sourceIp), "source-not-permitted");
    await this.open();
  }

  dropService(name: string): void {
    const { target } = this.#spec;
    if ("service" in target && target.service === name) this.#abort(() => true, "removed");
  }

  async stopListening(): Promise<void> {
    const bindings = [...this.#bindings.values()];
    this.#bindings.clear();
    for (const binding of bindings) this.#disown(binding);
    await Promise.all(bindings.map((binding) => binding.closeAfterBacklog()));
  }

  close(): void {
    for (const binding of this.#bindings.values()) this.#closeBinding(binding);
    this.#abort(() => true, "removed");
    this.#gates.in.close();
    this.#gates.out.close();
  }

  sweep(now: number): void {
    for (const flow of this.#flows) flow.sweep(now, this.#spec.idleTimeoutMs);
  }

  state(): ListenerState {
    const bindings = [...this.#bindings.values()].map(({ address, state }) => ({ address, state }));
    return stateOf(this.#spec, bindings, this.#options.targets.fault(this.#spec));
  }

  report(): ListenerCounters {
    return this.#counters.report(this.#spec, this.#flows);
  }

  accepted(client: Socket): void {
    const sourceIp = client.remoteAddress;
    if (sourceIp === undefined) {
      client.destroy();
      return;
    }
    this.#counters.flows += 1;
    const refusal = this.#judge(sourceIp);
    if (refusal !== undefined) return this.#refuse(client, sourceIp, refusal);
    const target = this.#options.targets.find(this.#spec);
    if (typeof target === "string") return this.#refuse(client, sourceIp, target);
    this.#options.budget.take(SOCKETS_PER_FLOW);
    const startedAt = this.#options.clock.now();
    const { pool } = this.#options;
    const flow = new TcpFlow({ client, sourceIp, target, gates: this.#gates, pool, startedAt, onEnd: this.#onEnd });
    this.#flows.add(flow);
    this.#options.onBusy();
    this.#options.starter.add(() => flow.start(this.#options.dialer));
  }

  acceptFailed(reason: OverlayReason): void {
    this.#counters.flows += 1;
    this.#counters.refused(reason);
  }

  #judge(sourceIp: string): OverlayReason | undefined {
    if (!this.#filter.allows(sourceIp)) return "source-not-permitted";
    if (this.#flows.size >= this.#spec.maxFlows) return "too-many-flows";
    return this.#options.budget.hasRoom(SOCKETS_PER_FLOW) ? undefined : "out-of-resources";
  }

  #refuse(client: Socket, sourceIp: string, reason: OverlayReason): void {
    this.#counters.refused(reason);
    const startedAt = this.#options.clock.now();
    const source = { sourceIp, sourcePort: client.remotePort ?? 0, startedAt };
    this.#options.flows.add(flowRecord(this.#spec, source, startedAt, reason));
    client.on("error", () => undefined).resetAndDestroy();
  }

  readonly #onEnd = (flow: TcpFlow, reason: OverlayReason | undefined): void => {
    this.#flows.delete(flow);
    this.#options.budget.give(SOCKETS_PER_FLOW);
    this.#counters.ended(flow, reason);
    this.#options.flows.add(flowRecord(this.#spec, flow, this.#options.clock.now(), reason));
  };

  #closeBinding(binding: TcpBinding): void {
    this.#disown(binding);
    binding.close();
    this.#bindings.delete(binding.address);
  }

  /** What failed to be bound may be another listener's. */
  #disown({ state, address, port }: TcpBinding): void {
    if (state.at === "listening") this.#options.own.remove("tcp", address, port);
  }

  #abort(which: (flow: TcpFlow) => boolean, reason: OverlayReason): void {
    for (const flow of this.#flows) if (which(flow)) flow.abort(reason);
  }
}
