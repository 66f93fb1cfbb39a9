import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { TLSSocket } from "node:tls";
import { SessionError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { MeshEvent, MeshPath, PathState, RttBucket } from "../../../protocol/overlay/mesh.ts";
import { clientSession, serverSession } from "../transport/http2.ts";
import { LOADED_STREAMS, retireUnused, SessionPool } from "../transport/session-pool.ts";
import type { PathId } from "./peer-dialer.ts";
import type { Random } from "../../../lib/async/backoff.ts";
import { redialDelay } from "./backoff.ts";
import type { HopProtocol, HopTarget } from "./dial-hop.ts";
import { countRequests, Hop, type HopEnd, type InboundHop, type OutboundHop } from "./hop.ts";
import { RttMinutes } from "./rtt-minutes.ts";
import { defined } from "../../../lib/defined.ts";

export interface LinkOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly dial: (target: HopTarget, protocol: HopProtocol, signal: AbortSignal) => Promise<TLSSocket>;
  readonly onStream: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, pathId: PathId) => void;
  /** Called when the state changed; `cameUp` if it has just come up. */
  readonly onChanged: (cameUp: boolean) => void;
  /** Called after each measured round trip. */
  readonly onMeasured: () => void;
  readonly onEvent: (event: MeshEvent) => void;
}

type Wanted = Pick<MeshPath, "host" | "port" | "local" | "isDefault">;

/** Minimum uptime of a path after which a loss resets the backoff. */
const STABLE_MS = 10_000;
/** Age of a dial after which a change of the network restarts it. */
const STALE_DIAL_MS = 1000;
const HASTEN_MS = 5000;
const MAX_REASON = 512;

/** A path to a gateway. Its inbound session is kept up indefinitely; its outbound ones are dialled on demand. */
export class Link {
  readonly pathId: PathId;
  readonly #options: LinkOptions;
  readonly #outbound: SessionPool<OutboundHop>;
  readonly #minutes: RttMinutes;
  readonly #life = new AbortController();
  /** All open sessions, including replaced ones. */
  readonly #hops = new Set<Hop>();
  #wanted: Wanted;
  #key: string | undefined;
  #current: InboundHop | undefined;
  #extra: InboundHop | Promise<void> | undefined;
  #state: PathState["state"] = "connecting";
  #reason: string | undefined;
  #since: number;
  #upSince: number | undefined;
  #trouble: HopEnd | undefined;
  #attempts = 0;
  #past = { bytesIn: 0, bytesOut: 0 };
  /** Interrupts the delay before a dial, or the wait for a change. */
  #interrupt = (_isAnew: boolean): void => undefined;
  #triedAt = -Infinity;
  /** The network changed during a dial, so its failure may have another cause. */
  #isWoken = false;
  #attempt: { readonly startedAt: number; readonly controller: AbortController } | undefined;

  constructor(path: MeshPath, key: string | undefined, options: LinkOptions) {
    this.pathId = { gateway: path.gateway, path: path.id };
    this.#minutes = new RttMinutes(this.pathId);
    this.#wanted = path;
    this.#key = key;
    this.#options = options;
    this.#since = options.clock.now();
    this.#outbound = new SessionPool({
      clock: options.clock,
      open: (signal) => this.#dialOutbound(signal),
      // A gateway limits the unauthenticated handshakes of each source address, which many nodes may share.
      maxDials: 1,
      to: "the gateway",
    });
    this.#life.signal.addEventListener("abort", () => this.#interrupt(true));
    void this.#keepUp();
  }

  get isDefault(): boolean {
    return this.#wanted.isDefault;
  }

  /** Monotonic; undefined while it is down. */
  get upSince(): number | undefined {
    return this.#upSince;
  }

  /** Reports whether its first dial has not finished. */
  get isUntried(): boolean {
    return this.#state === "connecting" && !this.#life.signal.aborted;
  }

  get rttMs(): number | undefined {
    return this.#current?.rttMs;
  }

  /** Reason of the loss, and the monotonic time of its first sign; undefined while it is up. */
  get trouble(): HopEnd | undefined {
    return this.#trouble;
  }

  state(carries: boolean): PathState {
    const current = this.#current;
    let { bytesIn, bytesOut } = this.#past;
    for (const { moved } of this.#hops) {
      bytesIn += moved.bytesIn;
      bytesOut += moved.bytesOut;
    }
    return {
      gateway: this.pathId.gateway,
      id: this.pathId.path,
      state: this.#state,
      since: this.#since,
      ...defined({ reason: this.#reason }),
      ...(current === undefined ? {} : { remote: current.remote }),
      ...(current?.rttMs === undefined ? {} : { rttMs: current.rttMs }),
      carries,
      loss: current?.loss ?? (this.#state === "down" ? 1 : 0),
      attempts: this.#attempts,
      bytesIn,
      bytesOut,
    };
  }

  /**
   * Returns an outbound session; dials one if needed. @throws {SessionError} `no-path`, `too-many-flows`, or why the
   * dial failed.
   */
  async outbound(signal: AbortSignal): Promise<OutboundHop> {
    if (this.#upSince === undefined) throw new SessionError("no-path", `the path is ${this.#state}`);
    this.#current?.hurry();
    return this.#outbound.take(signal);
  }

  /** Applies a changed path. If its address changed, the new session is opened before the old one retires. */
  change(path: MeshPath, key: string | undefined): void {
    const { host, port, local } = this.#wanted;
    const isElsewhere = host !== path.host || port !== path.port || local !== path.local;
    this.#wanted = path;
    if (key !== this.#key) {
      this.#key = key;
      this.#dropAll("the key of the gateway has changed");
    } else if (!isElsewhere) return;
    this.#attempt?.controller.abort();
    this.#interrupt(true);
  }

  /** Reacts to a change of the network: redials if down, probes if up, and ends sessions whose local address was removed. */
  wake(isHere: (address: string) => boolean): void {
    for (const hop of this.#hops) {
      if (hop.local !== undefined && !isHere(hop.local))
        hop.destroy(`the address ${hop.local} was removed from this machine`);
      else hop.probeNow();
    }
    const attempt = this.#attempt;
    this.#isWoken = attempt !== undefined;
    if (attempt === undefined) return this.#upSince === undefined ? this.#interrupt(true) : undefined;
    if (this.#options.clock.elapsed() - attempt.startedAt >= STALE_DIAL_MS) attempt.controller.abort();
  }

  /** Redials because another path has come up, unless the last dial was within 5 s. */
  hasten(): void {
    const isIdle = this.#upSince === undefined && this.#attempt === undefined;
    if (isIdle && this.#options.clock.elapsed() - this.#triedAt >= HASTEN_MS) this.#interrupt(false);
  }

  /** Stops dialling and accepting; running streams continue. */
  drain(): void {
    this.#life.abort(new SessionError("removed", "this overlay is draining"));
    for (const hop of this.#hops) hop.retire("this overlay is draining");
  }

  /** Closes everything immediately. */
  close(cause: string): void {
    this.#life.abort(new SessionError("removed", cause));
    this.#upSince = undefined;
    this.#dropAll(cause);
  }

  /** Removes and returns the completed minutes of round trips, or all. */
  closeMinutes(now: number, all: boolean): readonly RttBucket[] {
    return this.#minutes.close(now, all);
  }

  async #keepUp(): Promise<void> {
    const { clock, random } = this.#options;
    const { signal } = this.#life;
    let failures = 0;
    let wasUp = false;
    while (!signal.aborted) {
      if (await this.#interruptedWithin(redialDelay(failures, wasUp, random))) failures = 0;
      if (signal.aborted) return;
      try {
        const hop = await this.#attemptInbound();
        if (hop === undefined) continue;
        const upAt = clock.elapsed();
        this.#adopt(hop);
        await Promise.race([hop.closing, this.#interrupted()]);
        wasUp = true;
        failures = clock.elapsed() - upAt >= STABLE_MS ? 0 : failures + 1;
      } catch (thrown) {
        failures = this.#isWoken ? 1 : failures + 1;
        this.#isWoken = false;
        this.#failed(toError(thrown));
      }
    }
  }

  /** Resolves after `ms` or on an interrupt, to whether earlier failures no longer count. */
  async #interruptedWithin(ms: number): Promise<boolean> {
    if (ms === 0) return false;
    let cancel = (): void => undefined;
    const over = new Promise<false>((resolve) => {
      cancel = this.#options.clock.after(ms, () => resolve(false));
    });
    const isAnew = await Promise.race([over, this.#interrupted()]);
    cancel();
    return isAnew;
  }

  #interrupted(): Promise<boolean> {
    return new Promise((resolve) => {
      this.#interrupt = resolve;
      if (this.#life.signal.aborted) resolve(true);
    });
  }

  /** Returns an authenticated and probed session; undefined when the attempt was restarted or cancelled. */
  async #attemptInbound(): Promise<InboundHop | undefined> {
    const controller = new AbortController();
    this.#attempt = { startedAt: this.#options.clock.elapsed(), controller };
    this.#attempts += 1;
    this.#triedAt = this.#options.clock.elapsed();
    const signal = AbortSignal.any([this.#life.signal, controller.signal]);
    try {
      const hop = await this.#dialInbound(signal);
      const abort = (): void => hop.destroy("the dial was cancelled");
      signal.addEventListener("abort", abort);
      await hop.prove().catch((error: unknown) => {
        throw new SessionError("peer-unproven", `${toError(error).message}; the gateway may not know this node`);
      });
      signal.removeEventListener("abort", abort);
      return hop;
    } catch (error) {
      if (signal.aborted) return undefined;
      throw error;
    } finally {
      this.#attempt = undefined;
    }
  }

  async #dialInbound(signal: AbortSignal): Promise<InboundHop> {
    const { clock, onStream, onMeasured } = this.#options;
    const socket = await this.#options.dial(this.#target(), "holdfast-h2r", signal);
    const hop: InboundHop = new Hop(clock, socket, (tls) => serverSession(tls, { clock }), {
      sent: (at) => this.#minutes.sent(at),
      answered: (sentAt, rttMs) => {
        this.#minutes.answered(sentAt, rttMs);
        onMeasured();
      },
    });
    this.#own(hop);
    hop.session.on("stream", (stream, headers) => {
      hop.hold(stream);
      onStream(stream, headers, this.pathId);
      if (hop.streams >= LOADED_STREAMS) this.#relieve();
    });
    return hop;
  }

  async #dialOutbound(signal: AbortSignal): Promise<OutboundHop> {
    const { clock } = this.#options;
    const connect = (tls: TLSSocket) => clientSession(tls, this.pathId.gateway, { clock });
    const socket = await this.#options.dial(this.#target(), "h2", AbortSignal.any([this.#life.signal, signal]));
    const hop: OutboundHop = new Hop(clock, socket, connect, {
      sent: () => undefined,
      answered: () => undefined,
      // The cause of this silence may affect the path too, whose probes are rare while nothing arrives inbound.
      missed: () => this.#current?.hurry(),
    });
    this.#own(hop);
    countRequests(hop);
    void hop.prove().catch(() => undefined);
    return hop;
  }

  /** Dials a second inbound session while the first is full of streams. */
  #relieve(): void {
    if (this.#extra !== undefined || this.#upSince === undefined) return;
    this.#extra = this.#dialInbound(this.#life.signal).then(
      (hop) => {
        this.#extra = hop;
        retireUnused(this.#options.clock, hop);
        void hop.closing.then(() => {
          this.#extra = undefined;
        });
        void hop.prove().catch(() => undefined);
      },
      () => {
        this.#extra = undefined;
      },
    );
  }

  #own(hop: Hop): void {
    this.#hops.add(hop);
    void hop.ended.then((end) => {
      this.#hops.delete(hop);
      this.#past.bytesIn += hop.moved.bytesIn;
      this.#past.bytesOut += hop.moved.bytesOut;
      if (hop === this.#current) this.#lost(end);
      else if (this.#current?.isInTrouble === true) this.#current.destroy(end.cause, end.since);
    });
  }

  #adopt(hop: InboundHop): void {
    const { clock, onEvent, onChanged } = this.#options;
    const old = this.#current;
    this.#current = hop;
    if (old !== undefined) {
      old.retire("replaced by another session");
      this.#outbound.retire("replaced by another session");
    }
    if (this.#upSince !== undefined) return onChanged(false);
    this.#upSince = clock.elapsed();
    const trouble = this.#trouble;
    this.#trouble = undefined;
    if (trouble === undefined) this.#set("up", "the gateway proved its key and answered three probes");
    else {
      const { cause, since } = trouble;
      const durationMs = Math.max(0, clock.elapsed() - since);
      this.#set("up", `back after: ${cause}`);
      onEvent({ kind: "path-back", at: clock.now(), ...this.pathId, cause, durationMs });
    }
    onChanged(true);
  }

  #failed(error: Error): void {
    if (this.#life.signal.aborted) return;
    // A session that only serves running streams counts as lost once its replacement fails.
    if (this.#current !== undefined && this.#current.isOpen) return;
    if (this.#current !== undefined) {
      const end = { cause: `the gateway closed the session: ${error.message}`, since: this.#options.clock.elapsed() };
      return this.#lost(end);
    }
    if (this.#state === "down" && this.#reason === error.message) return;
    this.#set("down", error.message);
    this.#options.onChanged(false);
  }

  #lost(end: HopEnd): void {
    const cause = end.cause.slice(0, MAX_REASON);
    const { clock, onEvent, onChanged } = this.#options;
    this.#current = undefined;
    this.#upSince = undefined;
    this.#trouble = { cause, since: end.since };
    if (this.#life.signal.aborted) return;
    this.#set("down", cause);
    this.#outbound.drop(new SessionError("tunnel-lost", cause));
    if (this.#extra instanceof Hop) this.#extra.destroy(cause);
    onEvent({ kind: "path-lost", at: clock.now(), ...this.pathId, cause });
    onChanged(false);
  }

  #dropAll(cause: string): void {
    this.#outbound.drop(new SessionError("tunnel-lost", cause));
    for (const hop of this.#hops) hop.destroy(cause);
  }

  #set(state: PathState["state"], reason: string): void {
    if (state !== this.#state) this.#since = this.#options.clock.now();
    this.#state = state;
    this.#reason = reason.slice(0, MAX_REASON);
  }

  #target(): HopTarget {
    const { host, port, local } = this.#wanted;
    if (this.#key === undefined) throw new SessionError("peer-unproven", "the key of the gateway is not known");
    return { host, port, local, key: this.#key };
  }
}
