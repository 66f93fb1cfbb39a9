import type { ServerHttp2Stream } from "node:http2";
import type { Duplex } from "node:stream";
import { SessionError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { OverlayMesh, ServerState } from "../../../protocol/overlay/mesh.ts";
import type { OverlayReason } from "../../../protocol/overlay/overlay.ts";
import type { MeshLimiters } from "../transport/rate-limits.ts";
import { openStream } from "../paths/open-stream.ts";
import type { OutboundHop } from "../paths/hop.ts";
import { mostSpecificFailure, reasonOf, sessionErrorOf } from "../paths/failures.ts";
import { Splice } from "../../flow/splice.ts";
import type { RelayedSpliceOptions } from "../paths/peer-dialer.ts";
import { viasOf } from "../paths/static-routes.ts";
import type { ReceiveBuffers } from "../transport/receive-buffer.ts";

/** Opens a stream to a node that is not a client of this one. @throws {SessionError} with an `OverlayReason`. */
export type DialOnward = (peer: string, options: RelayedSpliceOptions) => Promise<{ readonly stream: Duplex }>;

export interface RelayOptions {
  readonly clock: Clock;
  readonly limiters: MeshLimiters;
  readonly receiveBuffers: ReceiveBuffers;
  /** Returns the sessions on which streams to a node can be opened, the best first. */
  readonly inbound: (peer: string) => readonly OutboundHop[];
  readonly onward: DialOnward;
  /** Maximum number of relayed streams. */
  readonly maxActive: number;
}

/** A stream to relay to another node. */
export interface RelayRequest {
  /** Sender, authenticated by the key of the session. */
  readonly from: string;
  /** Node that opened the stream. Only a gateway may name another node. */
  readonly source: string;
  readonly dest: string;
  /** Number of relays so far. */
  readonly hops: number;
}

interface Carried {
  readonly relayRequest: RelayRequest;
  readonly splice: Splice;
}

const MAX_HOPS = 3;

/** Relays streams between other nodes without reading them. */
export class Relay {
  readonly #options: RelayOptions;
  readonly #carried = new Set<Carried>();
  #pairs: ReadonlySet<string> | undefined;
  #mesh: OverlayMesh | undefined;
  /** Gateways that this node dials. */
  #dialled: ReadonlySet<string> = new Set();
  #isOn = false;
  #opening = 0;
  #total = 0;
  #bytes = 0;

  constructor(options: RelayOptions) {
    this.#options = options;
  }

  /** Applies other rules and ends the streams that they no longer allow. */
  apply(mesh: OverlayMesh | undefined): void {
    this.#isOn = mesh?.server !== undefined;
    const pairs = mesh?.server?.relays;
    this.#pairs = pairs === undefined ? undefined : new Set(pairs.map(({ source, dest }) => pairOf(source, dest)));
    this.#mesh = mesh;
    this.#dialled = new Set(mesh?.paths.map(({ gateway }) => gateway));
    for (const { relayRequest, splice } of this.#carried) if (!this.#mayCarry(relayRequest)) splice.abort();
  }

  get active(): number {
    return this.#carried.size;
  }

  get counts(): ServerState["relays"] {
    let bytes = this.#bytes;
    for (const { splice } of this.#carried) bytes += splice.bytes;
    return { active: this.#carried.size, total: this.#total, bytes };
  }

  /** Relays a stream, or refuses it with a reason. */
  async carry(stream: ServerHttp2Stream, relayRequest: RelayRequest): Promise<void> {
    const refusal = this.#judge(relayRequest);
    if (refusal !== undefined) return refuse(stream, refusal, relayRequest.hops);
    this.#opening += 1;
    const left = new AbortController();
    const leave = (): void => left.abort(new SessionError("reset", "the other side closed the stream"));
    stream.once("close", leave);
    try {
      const far = await this.#open(relayRequest, left.signal);
      stream.off("close", leave);
      this.#join(stream, far, relayRequest);
    } catch (error) {
      refuse(stream, shownReasonOf(error), relayRequest.hops);
    } finally {
      this.#opening -= 1;
    }
  }

  close(): void {
    for (const { splice } of this.#carried) splice.abort();
  }

  #judge(relayRequest: RelayRequest): OverlayReason | undefined {
    if (!this.#isOn) return "peer-absent";
    if (relayRequest.hops >= MAX_HOPS || !this.#mayCarry(relayRequest)) return "relay-refused";
    const isFull = this.#carried.size + this.#opening >= this.#options.maxActive;
    return isFull ? "too-many-flows" : undefined;
  }

  #mayCarry({ source, dest }: RelayRequest): boolean {
    return this.#isOn && (this.#pairs === undefined || this.#pairs.has(pairOf(source, dest)));
  }

  /** Tries the node itself, then the gateways of static routes, then the other gateways that this node dials. */
  async #open({ from, source, dest, hops }: RelayRequest, signal: AbortSignal): Promise<Duplex> {
    const { clock, inbound, onward } = this.#options;
    const headers = { ":authority": `${dest}:443`, "holdfast-hops": String(hops + 1), "holdfast-source": source };
    const options: RelayedSpliceOptions = { signal, hops: hops + 1, source, except: from };
    const vias = viasOf(this.#mesh, dest).filter((one) => one !== from);
    const failures: SessionError[] = [];
    for (const via of [dest, ...vias]) {
      const clients = inbound(via);
      if (clients.length === 0 && via !== dest && this.#dialled.has(via)) {
        try {
          return (await onward(dest, { ...options, via })).stream;
        } catch (error) {
          signal.throwIfAborted();
          failures.push(sessionErrorOf(error));
        }
      }
      for (const hop of clients) {
        try {
          return await openStream(clock, hop.session, headers, signal);
        } catch (error) {
          signal.throwIfAborted();
          // Another session of the node may work; the node's own answer is final.
          if (via === dest && !isLost(error)) throw error;
          failures.push(sessionErrorOf(error));
          if (!isLost(error)) break;
        }
      }
    }
    try {
      return (await onward(dest, { ...options, tried: new Set(vias) })).stream;
    } catch (error) {
      signal.throwIfAborted();
      throw mostSpecificFailure([...failures, sessionErrorOf(error)]) ?? error;
    }
  }

  #join(near: ServerHttp2Stream, far: Duplex, relayRequest: RelayRequest): void {
    const { limiters, receiveBuffers } = this.#options;
    this.#total += 1;
    const splice = new Splice(near, far, limiters, () => {
      this.#carried.delete(carried);
      this.#bytes += splice.bytes;
    });
    const carried = { relayRequest, splice };
    this.#carried.add(carried);
    receiveBuffers.watch(relayRequest.dest, far);
    receiveBuffers.forwardsTo(near, far);
    receiveBuffers.forwardsTo(far, near);
    if (!near.destroyed && !near.headersSent) near.respond({ ":status": 200 });
    splice.start();
    // The rules may have changed while the other side was awaited.
    if (!this.#mayCarry(relayRequest)) splice.abort();
  }
}

/** Answers with a status and the reason, unless the other side has closed the stream. */
export function refuse(stream: ServerHttp2Stream, reason: OverlayReason, hops = 0): void {
  if (stream.destroyed || stream.closed || stream.headersSent) return;
  // The runtime itself closes a stream that was not read; closing it here would overtake the answer.
  stream.respond({ ":status": statusOf(reason, hops), "holdfast-reason": reason }, { endStream: true });
}

function statusOf(reason: OverlayReason, hops: number): number {
  switch (reason) {
    case "relay-refused":
      return hops >= MAX_HOPS ? 508 : 403;
    case "peer-absent":
    case "unreachable":
    case "tunnel-lost":
      return 502;
    case "connect-timeout":
      return 504;
    case "out-of-resources":
    case "too-many-flows":
      return 503;
    default:
      return 500;
  }
}

function pairOf(source: string, dest: string): string {
  return `${source} ${dest}`;
}

function isLost(error: unknown): boolean {
  return error instanceof SessionError && (error.code === "tunnel-lost" || error.code === "connect-timeout");
}

/** The requester learns only whether the destination was reached, not which paths this node has. */
function shownReasonOf(error: unknown): OverlayReason {
  const reason = reasonOf(error);
  return reason === "no-path" ? "peer-absent" : reason;
}
