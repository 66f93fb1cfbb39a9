import { randomUUID } from "node:crypto";
import type { Socket } from "node:net";
import type {
  ListenerCounters,
  ListenerState,
  OverlayFlow,
  OverlayListener,
  OverlayReason,
} from "../../protocol/overlay/overlay.ts";
import { Bindings } from "../bindings/bindings.ts";
import { Counters } from "../flow/counters.ts";
import { Limits } from "../limits/limits.ts";
import { stateOf, type Listener, type ListenerOptions } from "../listeners/listener.ts";
import { flowRecord, type Dialled, type RunningFlow } from "../flow/running-flow.ts";
import type { LiveFlow } from "../flow/live-flows.ts";
import type { Dropped } from "../../protocol/overlay/change.ts";
import type { DialTarget } from "../dial/dial.ts";
import { FtpControl } from "../ftp/control.ts";
import type { RemoteTarget } from "../listeners/remote.ts";
import { RemoteTcpFlow, type RemoteTcpFlowOptions } from "./remote-flow.ts";
import { TcpBinding, type BindingUser } from "../bindings/tcp.ts";
import { TcpFlow } from "./flow.ts";

interface Controlled {
  readonly control: FtpControl;
  readonly flow: RunningFlow;
  readonly target: DialTarget | RemoteTarget;
}

/** Sockets per flow: the accepted one and the dialled one. */
export const SOCKETS_PER_FLOW = 2;

/** A TCP listener of the table: its sockets, flows, limits and counters. */
export class TcpListener implements Listener, BindingUser {
  readonly #options: ListenerOptions;
  readonly #bindings: Bindings<TcpBinding>;
  readonly #flows = new Map<RunningFlow, LiveFlow>();
  /** FTP control connections among the flows, and the data connections that belong to them. */
  readonly #controls = new Map<RunningFlow, FtpControl>();
  readonly #dataFlows = new Map<RunningFlow, FtpControl>();
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
    if (drops === "all") {
      this.#options.remoteRefusals.forget(this);
      this.#abort(() => true, "removed");
    }
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
    this.#options.remoteRefusals.forget(this);
  }

  sweep(now: number): void {
    for (const flow of this.#flows.keys()) flow.sweep(now, this.#spec.idleTimeoutMs);
  }

  state(): ListenerState {
    const { targets, shortage, remoteRefusals } = this.#options;
    const fault =
      targets.fault(this.#spec) ??
      remoteRefusals.reasonFor(this) ??
      (shortage.holdsFor(this) ? "out-of-resources" : undefined);
    return stateOf(this.#spec, this.#bindings.states, fault);
  }

  report(): ListenerCounters {
    return this.#counters.report(this.#spec, this.#flows.keys());
  }

  accepted(client: Socket): void {
    const sourceIp = client.remoteAddress;
    if (sourceIp === undefined) {
      client.destroy();
      return;
    }
    const isFull = this.#flows.size - this.#dataFlows.size >= this.#spec.maxFlows;
    this.#begin(client, sourceIp, isFull, () => this.#flowOf(client, sourceIp));
  }

  acceptFailed(reason: OverlayReason): void {
    this.#countRefused(reason);
  }

  #begin(
    client: Socket,
    sourceIp: string,
    isFull: boolean,
    make: () => RunningFlow | OverlayReason,
  ): RunningFlow | undefined {
    const flow = this.#judge(sourceIp, isFull) ?? make();
    if (typeof flow === "string") {
      this.#refuse(client, sourceIp, flow);
      return undefined;
    }
    this.#options.budget.take(SOCKETS_PER_FLOW);
    const live = { record: () => this.#recordOf(flow, undefined), cut: () => flow.abort("removed") };
    this.#flows.set(flow, live);
    this.#options.flows.begin(live);
    this.#options.onBusy();
    this.#options.pacedStart.add(() => flow.start());
    return flow;
  }

  #flowOf(client: Socket, sourceIp: string): RunningFlow | OverlayReason {
    const target = this.#options.targets.find(this.#spec);
    if (typeof target === "string") return target;
    return this.#spec.application === "ftp"
      ? this.#controlOf(client, sourceIp, target)
      : this.#make(client, sourceIp, target);
  }

  #controlOf(client: Socket, sourceIp: string, target: DialTarget | RemoteTarget): RunningFlow | OverlayReason {
    const control = new FtpControl({
      client,
      ports: this.#options.ports,
      onData: (socket, port) =>
        typeof flow === "string" ? undefined : this.#beginData(socket, port, { control, flow, target }),
      onFault: () => typeof flow !== "string" && flow.abort("protocol-mismatch"),
    });
    const flow = this.#make(client, sourceIp, target, control);
    if (typeof flow !== "string") this.#controls.set(flow, control);
    return flow;
  }

  #beginData(socket: Socket, port: number, { control, flow, target }: Controlled): RunningFlow | undefined {
    const data = this.#begin(socket, flow.sourceIp, false, () => {
      if ("peer" in target)
        return this.#makeRemote(socket, flow.sourceIp, target, { data: { control: control.id, port } });
      const reached = flow.destination;
      if (reached === undefined) return "unreachable";
      return this.#make(socket, flow.sourceIp, { ...target, host: reached.ip, port });
    });
    if (data !== undefined) this.#dataFlows.set(data, control);
    return data;
  }

  #make(
    client: Socket,
    sourceIp: string,
    target: DialTarget | RemoteTarget,
    control?: FtpControl,
  ): RunningFlow | OverlayReason {
    if ("peer" in target) {
      const request = control === undefined ? {} : { application: "ftp" as const, flow: control.id };
      return this.#makeRemote(client, sourceIp, target, request, control);
    }
    const { pool, dialer } = this.#options;
    return new TcpFlow({ ...this.#common(client, sourceIp), target, pool, dialer, interpreter: control });
  }

  #makeRemote(
    client: Socket,
    sourceIp: string,
    target: RemoteTarget,
    request: RemoteTcpFlowOptions["request"] & {},
    interpreter?: FtpControl,
  ): RunningFlow | OverlayReason {
    const remote = this.#options.remote();
    if (remote === undefined) return "no-path";
    return new RemoteTcpFlow({ ...this.#common(client, sourceIp), target, remote, request, interpreter });
  }

  #common(client: Socket, sourceIp: string) {
    const { clock } = this.#options;
    const dialled = this.#dialled(client);
    const { connector } = this.#spec;
    return {
      client,
      sourceIp,
      dialled,
      connector,
      limiters: this.#limits.limiters,
      startedAt: clock.now(),
      onEnd: this.#onEnd,
    };
  }

  #dialled({ localAddress, localPort }: Socket): Dialled {
    return { ip: localAddress, port: localPort ?? this.#spec.port };
  }

  #countRefused(reason: OverlayReason): void {
    this.#counters.refused(reason);
    if (reason === "out-of-resources") this.#options.shortage.note(this);
  }

  #judge(sourceIp: string, isFull: boolean): OverlayReason | undefined {
    if (!this.#limits.allows(sourceIp)) return "source-not-permitted";
    if (isFull) return "too-many-flows";
    return this.#options.budget.hasRoom(SOCKETS_PER_FLOW) ? undefined : "out-of-resources";
  }

  #refuse(client: Socket, sourceIp: string, reason: OverlayReason): void {
    this.#countRefused(reason);
    const startedAt = this.#options.clock.now();
    const sourcePort = client.remotePort ?? 0;
    const refused = { id: randomUUID(), sourceIp, sourcePort, dialled: this.#dialled(client), startedAt };
    this.#options.flows.refused(flowRecord(this.#spec, refused, startedAt, reason));
    client.on("error", () => undefined).resetAndDestroy();
  }

  readonly #onEnd = (flow: RunningFlow, reason: OverlayReason | undefined): void => {
    const live = this.#flows.get(flow);
    this.#flows.delete(flow);
    this.#controls.get(flow)?.close(reason);
    this.#controls.delete(flow);
    // A failed FTP data connection does not affect the service's health.
    const isRefused = reason !== undefined && !flow.isConnected && !this.#dataFlows.has(flow);
    if (isRefused && flow.target !== undefined && "peer" in flow.target)
      this.#options.remoteRefusals.note(this, reason);
    this.#dataFlows.get(flow)?.ended(flow);
    this.#dataFlows.delete(flow);
    this.#options.budget.give(SOCKETS_PER_FLOW);
    this.#counters.ended(flow, reason);
    if (reason === "out-of-resources") this.#options.shortage.note(this);
    const record = this.#recordOf(flow, reason);
    this.#options.flows.end(live, record, flow.agreed?.(record));
  };

  #recordOf(flow: RunningFlow, reason: OverlayReason | undefined): OverlayFlow {
    return flowRecord(this.#spec, flow, this.#options.clock.now(), reason);
  }

  #abort(which: (flow: RunningFlow) => boolean, reason: OverlayReason): void {
    for (const flow of this.#flows.keys()) if (which(flow)) flow.abort(reason);
  }
}
