import { randomUUID } from "node:crypto";
import type { RemoteInfo } from "node:dgram";
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
import { flowRecord, type Dialled } from "../flow/running-flow.ts";
import type { LiveFlow } from "../flow/live-flows.ts";
import type { Dropped } from "../../protocol/overlay/change.ts";
import { bindReason } from "../dial/reasons.ts";
import { RemoteUdpSession } from "./remote-session.ts";
import { SourcePrefixes } from "../limits/source-prefixes.ts";
import { isTransferRequest, TransferPort } from "./tftp.ts";
import { UdpBinding } from "../bindings/udp.ts";
import { UdpSession, type UdpFlow } from "./session.ts";

const MAX_RECORDED_A_SECOND = 100;
/** An answered session is evicted for a new one only after this idle time. */
const ANSWERED_IDLE_MS = 2000;
/** Number of longest idle sessions that are considered for eviction. */
const MAX_EXAMINED = 64;
const SECOND_MS = 1000;
/** Time limit of a drain. The successor's socket shares the port, so later datagrams may go to either. */
const DRAIN_MS = 60_000;

/** A UDP listener of the table: one session per client address and port. */
export class UdpListener implements Listener {
  readonly #options: ListenerOptions;
  readonly #bindings: Bindings<UdpBinding>;
  readonly #sessions = new Map<string, UdpFlow>();
  readonly #live = new Map<UdpFlow, LiveFlow>();
  readonly #counters = new Counters();
  readonly #limits: Limits;
  #spec: OverlayListener;
  readonly #prefixes = new SourcePrefixes();
  /** When each session was last active, least recently active first. */
  readonly #activeAt = new Map<string, number>();
  /** Transfers whose client has sent to the port assigned to it, which it can know from an answer only. */
  readonly #proved = new Set<string>();
  #second = -Infinity;
  #refusedInSecond = 0;
  #drainsUntil: number | undefined;

  constructor(spec: OverlayListener, options: ListenerOptions) {
    this.#spec = spec;
    this.#options = options;
    this.#limits = new Limits(options.clock, spec);
    this.#bindings = new Bindings("udp", options, (address, port) => new UdpBinding(address, port, this.#take));
  }

  get spec(): OverlayListener {
    return this.#spec;
  }

  get activeFlows(): number {
    return this.#sessions.size;
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
      this.#end(() => true, "removed");
    }
    if (drops === "forbidden") this.#end(({ sourceIp }) => !this.#limits.allows(sourceIp), "source-not-permitted");
    return this.open();
  }

  dropService(name: string): void {
    const { target } = this.#spec;
    if ("service" in target && !("peer" in target) && target.service === name) this.#end(() => true, "removed");
  }

  stopListening(): Promise<void> {
    this.#drainsUntil = this.#options.clock.elapsed() + DRAIN_MS;
    this.#closeWhenDrained(this.#options.clock.elapsed());
    return Promise.resolve();
  }

  close(): void {
    this.#bindings.close();
    this.#end(() => true, "removed");
    this.#limits.close();
    this.#options.shortage.forget(this);
    this.#options.remoteRefusals.forget(this);
  }

  sweep(now: number): void {
    for (const session of this.#sessions.values()) session.sweep(now, this.#spec.idleTimeoutMs);
    this.#closeWhenDrained(now);
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
    return this.#counters.report(this.#spec, this.#sessions.values());
  }

  readonly #take = (datagram: Buffer, from: RemoteInfo, binding: UdpBinding): void => {
    const now = this.#options.clock.elapsed();
    const key = `${binding.address} ${from.port} ${from.address}`;
    const isStray = this.#isTransfer && !this.#isTransferRequestFor(key, datagram);
    if (!isStray) this.#prefixes.received(from.address, datagram.length, now);
    const session = isStray ? undefined : (this.#sessions.get(key) ?? this.#begin(key, from, binding, now));
    this.#pass(key, datagram, session, now);
  };

  #pass(key: string, datagram: Buffer, session: UdpFlow | undefined, now: number): void {
    if (session === undefined || !this.#limits.limiters.in.admits(datagram.length)) {
      this.#counters.datagramsDropped += 1;
      return;
    }
    this.#touch(key, now);
    session.take(datagram, now);
  }

  #touch(key: string, now: number): void {
    if (!this.#sessions.has(key)) return;
    this.#activeAt.delete(key);
    this.#activeAt.set(key, now);
  }

  /**
   * Reports whether a reply may be sent to a client. A connector with a source list has no limit per prefix: its owner
   * accepts that those sources can be sent unrequested traffic.
   */
  #admitsReply(key: string, address: string, bytes: number): boolean {
    const isBounded = this.#spec.sources === undefined && !this.#proved.has(key);
    return (!isBounded || this.#prefixes.admits(address, bytes)) && this.#limits.limiters.out.admits(bytes);
  }

  get #isTransfer(): boolean {
    return this.#spec.application === "tftp";
  }

  /**
   * Reports whether a datagram belongs to the well-known TFTP port. A request from a client that was already answered
   * starts a new transfer; until then it repeats the first.
   */
  #isTransferRequestFor(key: string, datagram: Buffer): boolean {
    if (!isTransferRequest(datagram)) return false;
    const session = this.#sessions.get(key);
    if (session !== undefined && session.bytesOut > 0) session.end(undefined);
    return true;
  }

  #begin(key: string, from: RemoteInfo, binding: UdpBinding, now: number): UdpFlow | undefined {
    if (now - this.#second >= SECOND_MS) {
      this.#second = now;
      this.#refusedInSecond = 0;
    }
    const session =
      this.#judge(from.address, this.#isTransfer ? 2 : 1, now) ?? this.#sessionOf(key, from, binding, now);
    if (typeof session === "string") {
      this.#refuse(from, session, binding);
      return undefined;
    }
    this.#options.budget.take(this.#isTransfer ? 2 : 1);
    this.#sessions.set(key, session);
    this.#touch(key, now);
    const live = { record: () => this.#recordOf(session, undefined), cut: () => session.end("removed") };
    this.#live.set(session, live);
    this.#options.flows.begin(live);
    this.#options.onBusy();
    session.start();
    return session;
  }

  #sessionOf(key: string, from: RemoteInfo, binding: UdpBinding, now: number): UdpFlow | OverlayReason {
    const { targets, names, own, clock, remote } = this.#options;
    const target = targets.find(this.#spec);
    if (typeof target === "string") return target;
    const remoteNodes = remote();
    if ("peer" in target && remoteNodes === undefined) return "no-path";
    const isTransfer = this.#isTransfer;
    const port = isTransfer ? this.#portOf(key, from, binding) : undefined;
    const send = (datagram: Buffer): boolean => port?.send(datagram) ?? binding.send(datagram, from.port, from.address);
    const common = {
      sourceIp: from.address,
      sourcePort: from.port,
      dialled: dialledAt(binding),
      connector: this.#spec.connector,
      startedAt: clock.now(),
      isTransfer,
      reply: (datagram: Buffer) => {
        this.#touch(key, clock.elapsed());
        return this.#admitsReply(key, from.address, datagram.length) && send(datagram);
      },
      onDrop: () => void (this.#counters.datagramsDropped += 1),
      onEnd: (ended: UdpFlow, reason: OverlayReason | undefined) => {
        port?.close();
        this.#ended(key, ended, reason, isTransfer ? 2 : 1);
      },
    };
    if (!("peer" in target)) return new UdpSession({ ...common, target, names, own, now });
    return remoteNodes === undefined
      ? "no-path"
      : new RemoteUdpSession({ ...common, target, remote: remoteNodes, clock });
  }

  #portOf(key: string, from: RemoteInfo, { address }: UdpBinding): TransferPort {
    return new TransferPort({
      address,
      client: { ip: from.address, port: from.port },
      onDatagram: (datagram) => {
        this.#proved.add(key);
        this.#pass(key, datagram, this.#sessions.get(key), this.#options.clock.elapsed());
      },
      onDrop: () => void (this.#counters.datagramsDropped += 1),
      onError: (error) => this.#sessions.get(key)?.end(bindReason(error)),
    });
  }

  #judge(sourceIp: string, sockets: number, now: number): OverlayReason | undefined {
    if (!this.#limits.allows(sourceIp)) return "source-not-permitted";
    if (!this.#prefixes.admitsNew(sourceIp, now)) return "too-many-flows";
    if (this.#sessions.size >= this.#spec.maxFlows && !this.#evictIdle(now)) return "too-many-flows";
    return this.#options.budget.hasRoom(sockets) ? undefined : "out-of-resources";
  }

  /** Evicts the longest idle session, an answered one only after 2 s; reports whether it found one. */
  #evictIdle(now: number): boolean {
    let examinable = MAX_EXAMINED;
    for (const [key, activeAt] of this.#activeAt) {
      if (examinable === 0) break;
      examinable -= 1;
      const session = this.#sessions.get(key);
      if (session === undefined || (session.bytesOut > 0 && now - activeAt < ANSWERED_IDLE_MS)) continue;
      session.end(undefined);
      return true;
    }
    return false;
  }

  #refuse(from: RemoteInfo, reason: OverlayReason, binding: UdpBinding): void {
    this.#counters.refused(reason);
    if (reason === "out-of-resources") this.#options.shortage.note(this);
    // A flood from forged addresses must not evict the records of other clients.
    if (this.#refusedInSecond >= MAX_RECORDED_A_SECOND) return;
    this.#refusedInSecond += 1;
    const startedAt = this.#options.clock.now();
    const source = { sourceIp: from.address, sourcePort: from.port, dialled: dialledAt(binding) };
    this.#options.flows.refused(flowRecord(this.#spec, { id: randomUUID(), ...source, startedAt }, startedAt, reason));
  }

  #ended(key: string, session: UdpFlow, reason: OverlayReason | undefined, sockets: number): void {
    this.#sessions.delete(key);
    this.#activeAt.delete(key);
    this.#proved.delete(key);
    this.#options.budget.give(sockets);
    this.#counters.ended(session, reason);
    if (reason === "out-of-resources") this.#options.shortage.note(this);
    if (reason !== undefined && !session.isConnected && session.target !== undefined && "peer" in session.target)
      this.#options.remoteRefusals.note(this, reason);
    const live = this.#live.get(session);
    this.#live.delete(session);
    this.#options.flows.end(live, this.#recordOf(session, reason));
  }

  #recordOf(session: UdpFlow, reason: OverlayReason | undefined): OverlayFlow {
    return flowRecord(this.#spec, session, this.#options.clock.now(), reason);
  }

  #closeWhenDrained(now: number): void {
    if (this.#drainsUntil === undefined || (this.#sessions.size > 0 && now < this.#drainsUntil)) return;
    this.#bindings.close();
    this.#end(() => true, undefined);
  }

  #end(which: (session: UdpFlow) => boolean, reason: OverlayReason | undefined): void {
    for (const session of this.#sessions.values()) if (which(session)) session.end(reason);
  }
}

const ALL_ADDRESSES: ReadonlySet<string> = new Set(["0.0.0.0", "::"]);

function dialledAt({ address, port }: UdpBinding): Dialled {
  return { ip: ALL_ADDRESSES.has(address) ? undefined : address, port };
}
