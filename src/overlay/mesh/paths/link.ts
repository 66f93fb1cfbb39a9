import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { TLSSocket } from "node:tls";
import { SessionError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { MeshEvent, MeshPath, PathState, RttBucket } from "../../../protocol/overlay/mesh.ts";
import { clientSession, serverSession } from "../transport/http2.ts";
import type { PathId } from "./peer-dialer.ts";
import { redialDelay, type Random } from "./backoff.ts";
import type { HopProtocol, HopTarget } from "./dial-hop.ts";
import { Hop, retireUnused, type HopEnd, type InboundHop, type OutboundHop } from "./hop.ts";
import { OutboundSessions } from "./outbound-sessions.ts";
import { RttMinutes } from "./rtt-minutes.ts";
import { defined } from "../../../lib/defined.ts";

export interface LinkOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly dial: (target: HopTarget, protocol: HopProtocol, signal: AbortSignal) => Promise<TLSSocket>;
  readonly onStream: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, pathId: PathId) => void;
  /** It stands otherwise; it may have just come up. */
  readonly onChanged: (cameUp: boolean) => void;
  /** Its round trip was measured anew. */
  readonly onMeasured: () => void;
  readonly onEvent: (event: MeshEvent) => void;
}

type Wanted = Pick<MeshPath, "host" | "port" | "local" | "isDefault">;

/** How long a path must have been up so that its next loss is not counted together with the last one. */
const STABLE_MS = 10_000;
/** With this many streams on the inward session, another is dialled. */
const LOADED_STREAMS = 200;
/** A dial that has lasted this long when something changed in the network is begun anew. */
const STALE_DIAL_MS = 1000;
const HASTEN_MS = 5000;
const MAX_REASON = 512;

/** One path to a gateway: its inward session is held up for ever, its outward one comes with the first need. */
export class Link {
  readonly pathId: PathId;
  readonly #options: LinkOptions;
  readonly #outbound: OutboundSessions;
  readonly #minutes: RttMinutes;
  readonly #life = new AbortController();
  /** Every session that is not over, replaced ones among them. */
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
  /** Ends the pause before a dial, or the wait for a reason to dial. */
  #interrupt = (_isAnew: boolean): void => undefined;
  #triedAt = -Infinity;
  /** Something changed in the network while a dial was under way, so its failure says little. */
  #isWoken = false;
  #attempt: { readonly startedAt: number; readonly controller: AbortController } | undefined;

  constructor(path: MeshPath, key: string | undefined, options: LinkOptions) {
    this.pathId = { gateway: path.gateway, path: path.id };
    this.#minutes = new RttMinutes(this.pathId);
    this.#wanted = path;
    this.#key = key;
    this.#options = options;
    this.#since = options.clock.now();
    this.#outbound = new OutboundSessions({
      clock: options.clock,
      raise: (signal) => this.#dialOutbound(signal),
    });
    this.#life.signal.addEventListener("abort", () => this.#interrupt(true));
    void this.#keepUp();
  }

  get isDefault(): boolean {
    return this.#wanted.isDefault;
  }

  /** Monotonic; undefined while it is not up. */
  get upSince(): number | undefined {
    return this.#upSince;
  }

  /** Whether it is not known yet if it can be had. */
  get isUntried(): boolean {
    return this.#state === "connecting" && !this.#life.signal.aborted;
  }

  get rttMs(): number | undefined {
    return this.#current?.rttMs;
  }

  /** Why it was lost, and the first sign of that (monotonic); undefined unless it was. */
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

  /** The outward session, dialled if need be. @throws {SessionError} `no-path`, `too-many-flows`, or why it cannot be dialled. */
  async outbound(signal: AbortSignal): Promise<OutboundHop> {
    if (this.#upSince === undefined) throw new SessionError("no-path", `the path is ${this.#state}`);
    this.#current?.hurry();
    return this.#outbound.take(signal);
  }

  /** Takes another form of the same path: where it leads elsewhere, the new session comes first and the old one then goes. */
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

  /** Something has changed in the network: what waits is dialled, what is up is probed, what left from an address that is gone ends. */
  wake(isHere: (address: string) => boolean): void {
    for (const hop of this.#hops) {
      if (hop.local !== undefined && !isHere(hop.local)) hop.destroy(`the address ${hop.local} is gone`);
      else hop.probeNow();
    }
    const attempt = this.#attempt;
    this.#isWoken = attempt !== undefined;
    if (attempt === undefined) return this.#upSince === undefined ? this.#interrupt(true) : undefined;
    if (this.#options.clock.elapsed() - attempt.startedAt >= STALE_DIAL_MS) attempt.controller.abort();
  }

  /** Another path has come up, so this one may: it is dialled at once, unless that was just done. */
  hasten(): void {
    const isIdle = this.#upSince === undefined && this.#attempt === undefined;
    if (isIdle && this.#options.clock.elapsed() - this.#triedAt >= HASTEN_MS) this.#interrupt(false);
  }

  /** Dials no more and takes nothing new; what runs goes on. */
  drain(): void {
    this.#life.abort(new SessionError("removed", "this overlay is draining"));
    for (const hop of this.#hops) hop.retire("this overlay is draining");
  }

  /** Ends everything at once. */
  close(cause: string): void {
    this.#life.abort(new SessionError("removed", cause));
    this.#upSince = undefined;
    this.#dropAll(cause);
  }

  /** Takes the minutes of round trips that are over, or all. */
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

  /** Resolves after `ms`, or when it is stirred: to whether what failed before does not count any more. */
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

  /** A session that has proved itself; undefined when the attempt is to be begun anew, or given up. */
  async #attemptInbound(): Promise<InboundHop | undefined> {
    const controller = new AbortController();
    this.#attempt = { startedAt: this.#options.clock.elapsed(), controller };
    this.#attempts += 1;
    this.#triedAt = this.#options.clock.elapsed();
    const signal = AbortSignal.any([this.#life.signal, controller.signal]);
    try {
      const hop = await this.#dialInbound(signal);
      const abort = (): void => hop.destroy("given up before it was in use");
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
      // What makes this one silent may have done so to the path, which is looked at seldom while nothing comes inward.
      missed: () => this.#current?.hurry(),
    });
    this.#own(hop);
    void hop.prove().catch(() => undefined);
    return hop;
  }

  /** A second inward session while the first is full of streams. */
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
      old.retire("another session has taken its place");
      this.#outbound.retire();
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
    // A session that still serves what it has, though nothing new, is as good as lost once there is no other.
    if (this.#current !== undefined && this.#current.isOpen) return;
    if (this.#current !== undefined) {
      const end = { cause: `the gateway went away: ${error.message}`, since: this.#options.clock.elapsed() };
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
    this.#outbound.drop(cause);
    if (this.#extra instanceof Hop) this.#extra.destroy(cause);
    onEvent({ kind: "path-lost", at: clock.now(), ...this.pathId, cause });
    onChanged(false);
  }

  #dropAll(cause: string): void {
    this.#outbound.drop(cause);
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
