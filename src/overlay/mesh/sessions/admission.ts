import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { Clock } from "../../../host/clock.ts";
import { errnoOf } from "../../../errors.ts";
import { sharedPrefix } from "../../../lib/net/plain-address.ts";
import { TokenBucket } from "../../../lib/async/token-bucket.ts";
import { acceptTls, whenProved, type MeshIdentity, type MeshProtocol } from "../transport/tls.ts";

/** Reason to reject an unauthenticated connection. */
export type Refusal = "too-many" | "timeout" | "closed" | "tls" | "unknown-key" | "alpn";

/** Limits for unauthenticated connections. */
export interface AdmissionLimits {
  readonly proofMs: number;
  readonly perSource: number;
  readonly inAll: number;
  /** Failures per address, as burst and per second, after which it is rejected immediately. */
  readonly failures: number;
  readonly failuresPerSecond: number;
}

export interface AdmissionOptions {
  readonly clock: Clock;
  readonly identity: () => MeshIdentity | undefined;
  /** Returns the node that owns a key, if it may connect now. */
  readonly peerOf: (key: string) => string | undefined;
  /** Called with an authenticated node. Its socket must be used in the same turn of the event loop. */
  readonly onPeer: (peer: string, protocol: MeshProtocol, socket: TLSSocket, key: string) => void;
  readonly limits?: Partial<AdmissionLimits>;
}

const LIMITS: AdmissionLimits = { proofMs: 10_000, perSource: 16, inAll: 1024, failures: 64, failuresPerSecond: 2 };
const MAX_SOURCES = 4096;
/** When all places are taken, a handshake that has lasted this long is aborted for a new one; a normal one takes less. */
const YIELD_AFTER_MS = 2000;

/**
 * Weight of a connection that closes before sending data, relative to a failed handshake. Traces of hops do this, from
 * every node behind one NAT.
 */
const CLOSED_COST = 1 / 16;

interface Waiting {
  readonly raw: Socket;
  readonly source: string;
  readonly since: number;
  readonly abort: AbortController;
}

/** Limits handshakes of unauthenticated peers, and admits peers that prove the key of a node that may connect. */
export class Admission {
  readonly #options: AdmissionOptions;
  readonly #limits: AdmissionLimits;
  readonly #refused = new Map<Refusal, number>();
  /** Oldest first. */
  readonly #waiting = new Set<Waiting>();
  readonly #bySource = new Map<string, number>();
  /** Remaining failures of sources that have failed; a handshake is the most expensive operation open to strangers. */
  readonly #failing = new Map<string, TokenBucket>();

  constructor(options: AdmissionOptions) {
    this.#options = options;
    this.#limits = { ...LIMITS, ...options.limits };
  }

  /** Number of rejected connections, by reason. */
  get refused(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#refused);
  }

  accepted(raw: Socket): void {
    const identity = this.#options.identity();
    const source = raw.remoteAddress === undefined ? undefined : sharedPrefix(raw.remoteAddress);
    if (identity === undefined || source === undefined) return reject(raw);
    const now = this.#options.clock.elapsed();
    const isLimited = (this.#failing.get(source)?.available(now) ?? 1) < 1;
    if (isLimited || (this.#bySource.get(source) ?? 0) >= this.#limits.perSource || !this.#hasPlace()) {
      this.#count("too-many");
      return reject(raw);
    }
    const waiting = { raw, source, since: now, abort: new AbortController() };
    this.#waiting.add(waiting);
    this.#bySource.set(source, (this.#bySource.get(source) ?? 0) + 1);
    void this.#prove(waiting, identity);
  }

  acceptFailed(): void {
    this.#count("too-many");
  }

  /** Rejects all unauthenticated connections. */
  close(): void {
    for (const { abort } of this.#waiting) abort.abort();
  }

  async #prove(waiting: Waiting, identity: MeshIdentity): Promise<void> {
    const { raw, abort } = waiting;
    let why: Refusal = "tls";
    const cancel = this.#options.clock.after(this.#limits.proofMs, () => {
      why = "timeout";
      abort.abort();
    });
    raw.on("error", ignore);
    // TLS has no half-closed state.
    raw.allowHalfOpen = false;
    try {
      const socket = acceptTls(raw, identity, ["h2", "holdfast-h2r"]);
      const { key, protocol } = await whenProved(socket, abort.signal);
      const peer = this.#options.peerOf(key);
      if (peer === undefined) {
        socket.on("error", ignore).destroy();
        this.#failed("unknown-key", waiting.source);
      } else this.#options.onPeer(peer, protocol, socket, key);
    } catch (error) {
      const code = errnoOf(error);
      if (code === "alpn" || code === "unknown-key") why = code;
      else if (raw.bytesRead === 0 && !abort.signal.aborted) why = "closed";
      this.#failed(why, waiting.source);
      reject(raw);
    } finally {
      cancel();
      this.#leave(waiting);
    }
  }

  #hasPlace(): boolean {
    if (this.#waiting.size < this.#limits.inAll) return true;
    const [longest] = this.#waiting;
    if (longest === undefined || this.#options.clock.elapsed() - longest.since < YIELD_AFTER_MS) return false;
    // Frees the place immediately, not only when the socket has closed.
    this.#leave(longest);
    longest.abort.abort();
    return true;
  }

  #leave(waiting: Waiting): void {
    if (!this.#waiting.delete(waiting)) return;
    const left = (this.#bySource.get(waiting.source) ?? 1) - 1;
    if (left > 0) this.#bySource.set(waiting.source, left);
    else this.#bySource.delete(waiting.source);
  }

  #failed(why: Refusal, source: string): void {
    this.#count(why);
    const { failures: burst, failuresPerSecond: perSecond } = this.#limits;
    const now = this.#options.clock.elapsed();
    const left = this.#failing.get(source) ?? new TokenBucket({ perSecond, burst }, now);
    left.takeIfAvailable(why === "closed" ? CLOSED_COST : 1, now);
    this.#failing.delete(source);
    this.#failing.set(source, left);
    const [longest] = this.#failing.keys();
    if (this.#failing.size > MAX_SOURCES && longest !== undefined) this.#failing.delete(longest);
  }

  #count(why: Refusal): void {
    this.#refused.set(why, (this.#refused.get(why) ?? 0) + 1);
  }
}

/** Resets the connection, so that no state remains here. */
function reject(raw: Socket): void {
  raw.on("error", ignore).resetAndDestroy();
}

function ignore(): void {
  return undefined;
}
