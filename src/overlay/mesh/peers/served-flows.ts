import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { isIP } from "node:net";
import type { OverlayMesh } from "../../../protocol/overlay/mesh.ts";
import type { OverlayFlow, OverlayReason } from "../../../protocol/overlay/overlay.ts";
import type { ListenerOptions } from "../../listeners/listener.ts";
import type { LiveFlow } from "../../flow/live-flows.ts";
import { literalTarget, type Offered } from "../../listeners/targets.ts";
import type { TwoWayLimiters } from "../../limits/rate-limiter.ts";
import type { ReceiveBuffers } from "../transport/receive-buffer.ts";
import { isForbidden } from "../../../lib/net/forbidden-address.ts";
import { avoidanceReason, type Avoided } from "../../dial/avoided.ts";
import { grantsOf, literalOf, literalPolicy, type Grants } from "./grants.ts";
import { refuse, servedRecord, type ServedFlow, type ServedFlowOptions } from "./served-flow.ts";
import { ServedFtp } from "./served-ftp.ts";
import { ServedTcp } from "./served-tcp.ts";
import { ServedUdp } from "./served-udp.ts";
import { ByteAgreement } from "./byte-agreement.ts";
import { readFlow, type FlowRequest } from "../transport/wire.ts";

/** Dependencies on this node's listeners. */
export type Local = Pick<
  ListenerOptions,
  "clock" | "dialer" | "names" | "own" | "budget" | "flows" | "targets" | "onBusy"
>;

const LITERAL_IDLE_MS = { tcp: 900_000, udp: 60_000 } as const;
/**
 * Only port at which a literal address is accepted as an FTP server. A server that echoes its input could otherwise be
 * made to announce any port of that host.
 */
const FTP_PORT = 21;
const SECOND_MS = 1000;
/** Limit of recorded refusals per second, so that a peer cannot evict the records of others. */
const RECORDED_A_SECOND = 100;

/** Serves the flows that peers open to services of this node. */
export class ServedFlows {
  readonly taken: ByteAgreement;
  readonly #local: Local;
  readonly #receiveBuffers: Pick<ReceiveBuffers, "watch">;
  readonly #tunnels: TwoWayLimiters;
  readonly #flows = new Map<ServedFlow, LiveFlow>();
  readonly #controls = new Map<string, ServedFtp>();
  #grants: Grants = grantsOf([]);
  #literals = literalPolicy(undefined);
  #peers: ReadonlySet<string> = new Set();
  #second = -Infinity;
  #recordedInSecond = 0;

  constructor(local: Local, receiveBuffers: Pick<ReceiveBuffers, "watch">, tunnels: TwoWayLimiters) {
    this.#local = local;
    this.taken = new ByteAgreement(local.clock);
    this.#receiveBuffers = receiveBuffers;
    this.#tunnels = tunnels;
  }

  get active(): number {
    return this.#flows.size;
  }

  /** Applies other grants and ends the flows that are no longer granted. */
  apply({ peers, grants, literals }: Pick<OverlayMesh, "peers" | "grants" | "literals">): void {
    this.#peers = new Set(peers.map(({ uid }) => uid));
    this.#grants = grantsOf(grants);
    const before = this.#literals;
    this.#literals = literalPolicy(literals);
    // Only the machine knows which literals lead to the node itself; permitted clients can connect again.
    const endsLiterals = before.permitsOwn && !this.#literals.permitsOwn;
    for (const flow of this.#flows.keys()) {
      if (!this.#peers.has(flow.peer)) flow.abort("removed");
      else if (!this.#isGranted(flow.peer, flow.request)) flow.abort("not-granted");
      else if (literalOf(flow.request.service) !== undefined) {
        const isPermitted = !endsLiterals && this.#literals.permitsService(flow.request.service);
        if (!isPermitted) flow.abort("literal-not-permitted");
      }
    }
  }

  knows(peer: string): boolean {
    return this.#peers.has(peer);
  }

  /** Serves a flow or refuses it; `peer` is authenticated. */
  take(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    peer: string,
    lost: () => OverlayReason | undefined,
  ): void {
    const { clock } = this.#local;
    const request = readFlow(headers);
    if (request === undefined) {
      stream.on("error", () => undefined).resume();
      stream.respond({ ":status": 400, "holdfast-reason": "other" }, { endStream: true });
      return;
    }
    const startedAt = clock.now();
    const offered = this.#offer(peer, request);
    if (request.isQuestion === true) {
      void this.#judged(offered).then((judged) => answer(stream, judged));
      return;
    }
    if (typeof offered === "string") {
      refuse(stream, offered);
      this.#recordRefusal(servedRecord(peer, request, { reason: offered }, { startedAt, endedAt: startedAt }));
      return;
    }
    this.#local.budget.take(1);
    const tunnels = this.#tunnels;
    const flow = this.#flowOf({ stream, peer, request, offered, lost, tunnels, startedAt, onEnd: this.#onEnd });
    const live = { record: () => flow.record(), cut: () => flow.abort("removed") };
    this.#flows.set(flow, live);
    this.#local.flows.begin(live);
    this.#receiveBuffers.watch(peer, stream);
    this.#local.onBusy();
    flow.start();
  }

  dropService(name: string): void {
    for (const flow of this.#flows.keys()) if (flow.request.service === name) flow.abort("removed");
  }

  sweep(now: number): void {
    for (const flow of this.#flows.keys()) flow.sweep(now);
  }

  close(): void {
    for (const flow of this.#flows.keys()) flow.abort("removed");
  }

  #flowOf(options: ServedFlowOptions): ServedFlow {
    const { peer, request } = options;
    if (request.protocol === "udp") return new ServedUdp(options, this.#local);
    if (request.application === "ftp") {
      const control = new ServedFtp(options, this.#local);
      this.#controls.set(controlKey(peer, request.flow), control);
      return control.flow;
    }
    const flow = new ServedTcp(options, this.#local);
    this.#controlOf(peer, request)?.begun(flow);
    return flow;
  }

  /** Returns the control connection of a data connection, if it leads to the same service. */
  #controlOf(peer: string, { service, data }: FlowRequest): ServedFtp | undefined {
    const control = data && this.#controls.get(controlKey(peer, data.control));
    return control?.flow.request.service === service ? control : undefined;
  }

  #isGranted(peer: string, { service, protocol }: FlowRequest): boolean {
    return this.#grants.has(peer, service, protocol);
  }

  #offer(peer: string, request: FlowRequest): Offered | OverlayReason {
    const { service, protocol, data } = request;
    if (!this.#peers.has(peer) || !this.#isGranted(peer, request)) return "not-granted";
    if (!this.#local.budget.hasRoom(1)) return "out-of-resources";
    if (data !== undefined) return this.#controlOf(peer, request)?.claim(data.port) ?? "not-granted";
    const literal = literalOf(service);
    if (literal === undefined) {
      const offered = this.#local.targets.service(service, request);
      return typeof offered === "string" || isIP(offered.target.host) !== 0 ? offered : avoiding(offered, "reserved");
    }
    if (isForbidden(literal.host)) return "not-granted";
    if (!this.#literals.permits(literal.host)) return "literal-not-permitted";
    if (request.application === "ftp" && literal.port !== FTP_PORT) return "protocol-mismatch";
    const offered = { target: literalTarget(literal), idleTimeoutMs: LITERAL_IDLE_MS[protocol] };
    return avoiding(offered, this.#literals.permitsOwn ? "reserved" : "own");
  }

  /** Applies the check of a dial to a literal address, which may be one of this machine. */
  async #judged(offered: Offered | OverlayReason): Promise<Offered | OverlayReason> {
    if (typeof offered === "string") return offered;
    const { host, avoids } = offered.target;
    if (isIP(host) === 0) return offered;
    return (await avoidanceReason(avoids, host, this.#local.own.localAddresses)) ?? offered;
  }

  readonly #onEnd: ServedFlowOptions["onEnd"] = (flow, record, sent) => {
    const live = this.#flows.get(flow);
    this.#flows.delete(flow);
    this.#controlOf(flow.peer, flow.request)?.ended(flow);
    const key = controlKey(flow.peer, flow.request.flow);
    const control = this.#controls.get(key);
    if (control?.flow === flow) {
      this.#controls.delete(key);
      control.close(record.reason);
    }
    this.#local.budget.give(1);
    this.#local.flows.end(live, record, sent === undefined ? undefined : this.#agreed(flow, record, sent));
  };

  /** Returns the record with the bytes that the peer received. */
  async #agreed({ peer, request }: ServedFlow, record: OverlayFlow, sent: number): Promise<OverlayFlow> {
    const taken = await this.taken.ended(peer, request.flow, record.sourceBytes);
    return taken === undefined ? record : { ...record, destBytes: Math.min(taken, sent) };
  }

  #recordRefusal(record: OverlayFlow): void {
    const now = this.#local.clock.elapsed();
    if (now - this.#second >= SECOND_MS) {
      this.#second = now;
      this.#recordedInSecond = 0;
    }
    this.#recordedInSecond += 1;
    if (this.#recordedInSecond <= RECORDED_A_SECOND) this.#local.flows.refused(record);
  }
}

const avoiding = ({ target, ...rest }: Offered, avoids: Avoided): Offered => ({
  ...rest,
  target: { ...target, avoids },
});

/** Answers a question as a flow would be answered. A question has no record. */
function answer(stream: ServerHttp2Stream, offered: Offered | OverlayReason): void {
  if (typeof offered === "string") return refuse(stream, offered);
  stream.on("error", () => undefined).resume();
  stream.respond({ ":status": 200 }, { endStream: true });
}

const controlKey = (peer: string, flow: string): string => `${peer} ${flow}`;
