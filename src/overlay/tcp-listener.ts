import type { Socket } from "node:net";
import type { ListenerCounters, ListenerState, OverlayListener, OverlayReason } from "../protocol/overlay.ts";
import { Bindings } from "./bindings.ts";
import { Counters } from "./counters.ts";
import { Limits } from "./limits.ts";
import { flowRecord, stateOf, type Listener, type ListenerOptions, type RunningFlow } from "./listener.ts";
import type { Dropped } from "../protocol/overlay-change.ts";
import { RemoteTcpFlow } from "./remote-tcp-flow.ts";
import { TcpBinding, type BindingUser } from "./tcp-binding.ts";
import { TcpFlow } from "./tcp-flow.ts";

/** The accepted one and the dialled one. */
export const SOCKETS_PER_FLOW = 2;

/** A TCP entry of the table at work: its sockets, its flows, its limits and what it has counted. */
export class TcpListener implements Listener, BindingUser {
  readonly #options: ListenerOptions;
  readonly #bindings: Bindings<TcpBinding>;
  readonly #flows = new Set<RunningFlow>();
  readonly #counters = new Counters();
  readonly #limits: Limits;
  #spec: OverlayListener;

  constructor(spec: OverlayListener, options: ListenerOptions) {
    this.#spec = spec;
    this.#options = options;
    this.#limits = new Limits(options.clock, spec);
    this.#bindings = new Bindings("tcp", options, (address, port) => new TcpBinding(address, port, this));
  }

  get spec(): OverlayListener {
    return this.#spec;
  }

  get activeFlows(): number {
    return this.#flows.size;
  }

  open(): Promise<void> {
    return this.#bindings.open(this.#spec);
  }

  change(spec: OverlayListener, drops: Dropped): Promise<void> {
    this.#spec = spec;
    this.#limits.change(spec);
    this.#bindings.keepOnly(spec);
    if (drops === "all") this.#abort(() => true, "removed");
    if (drops === "forbidden") this.#abort(({ sourceIp }) => !this.#limits.allows(sourceIp), "source-not-permitted");
    return this.open();
  }

  dropService(name: string): void {
    const { target } = this.#spec;
    if ("service" in target && !("peer" in target) && target.service === name) this.#abort(() => true, "removed");
  }

  async stopListening(): Promise<void> {
    await Promise.all(this.#bindings.release().map((binding) => binding.closeAfterBacklog()));
  }

  close(): void {
    this.#bindings.close();
    this.#abort(() => true, "removed");
    this.#limits.close();
    this.#options.shortage.forget(this);
  }

  sweep(now: number): void {
    for (const flow of this.#flows) flow.sweep(now, this.#spec.idleTimeoutMs);
  }

  state(): ListenerState {
    const { targets, shortage } = this.#options;
    const fault = targets.fault(this.#spec) ?? (shortage.holdsFor(this) ? "out-of-resources" : undefined);
    return stateOf(this.#spec, this.#bindings.states, fault);
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
    const flow = this.#flowOf(client, sourceIp);
    if (typeof flow === "string") return this.#refuse(client, sourceIp, flow);
    this.#options.budget.take(SOCKETS_PER_FLOW);
    this.#flows.add(flow);
    this.#options.onBusy();
    this.#options.starter.add(() => flow.start());
  }

  acceptFailed(reason: OverlayReason): void {
    this.#counters.flows += 1;
    this.#countRefused(reason);
  }

  #flowOf(client: Socket, sourceIp: string): RunningFlow | OverlayReason {
    const { targets, clock, pool, dialer, remote } = this.#options;
    const target = targets.find(this.#spec);
    if (typeof target === "string") return target;
    const common = { client, sourceIp, gates: this.#limits.gates, startedAt: clock.now(), onEnd: this.#onEnd };
    if (!("peer" in target)) return new TcpFlow({ ...common, target, pool, dialer });
    const way = remote();
    return way === undefined ? "no-path" : new RemoteTcpFlow({ ...common, target, remote: way });
  }

  #countRefused(reason: OverlayReason): void {
    this.#counters.refused(reason);
    if (reason === "out-of-resources") this.#options.shortage.note(this);
  }

  #judge(sourceIp: string): OverlayReason | undefined {
    if (!this.#limits.allows(sourceIp)) return "source-not-permitted";
    if (this.#flows.size >= this.#spec.maxFlows) return "too-many-flows";
    return this.#options.budget.hasRoom(SOCKETS_PER_FLOW) ? undefined : "out-of-resources";
  }

  #refuse(client: Socket, sourceIp: string, reason: OverlayReason): void {
    this.#countRefused(reason);
    const startedAt = this.#options.clock.now();
    const source = { sourceIp, sourcePort: client.remotePort ?? 0, startedAt };
    this.#options.flows.add(flowRecord(this.#spec, source, startedAt, reason));
    client.on("error", () => undefined).resetAndDestroy();
  }

  readonly #onEnd = (flow: RunningFlow, reason: OverlayReason | undefined): void => {
    this.#flows.delete(flow);
    this.#options.budget.give(SOCKETS_PER_FLOW);
    this.#counters.ended(flow, reason);
    if (reason === "out-of-resources") this.#options.shortage.note(this);
    this.#options.flows.add(flowRecord(this.#spec, flow, this.#options.clock.now(), reason));
  };

  #abort(which: (flow: RunningFlow) => boolean, reason: OverlayReason): void {
    for (const flow of this.#flows) if (which(flow)) flow.abort(reason);
  }
}
