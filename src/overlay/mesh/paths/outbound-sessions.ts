import { SessionError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import { untilAborted } from "../../../lib/async/until-aborted.ts";
import { countRequests, retireUnused, type OutboundHop } from "./hop.ts";

export interface OutboundSessionsOptions {
  readonly clock: Clock;
  /** Dials another session. */
  readonly raise: (signal: AbortSignal) => Promise<OutboundHop>;
}

/** Enough for 10,000 flows, the usual limit of a connector, to a gateway that is their destination. */
export const MAX_SESSIONS = 40;
/** Number of streams per session at which another is dialled, up to the maximum. */
const LOADED_STREAMS = 200;
export const FULL_STREAMS = 256;

interface Waiting {
  readonly take: (hop: OutboundHop) => void;
  readonly fail: (error: Error) => void;
}

/** Outbound sessions of one path: dialled on demand, more under load. */
export class OutboundSessions {
  readonly #options: OutboundSessionsOptions;
  #hops: readonly OutboundHop[] = [];
  #isRaising = false;
  /** Requests that wait for the next session, in order. */
  #waiting: Waiting[] = [];
  #scope = new AbortController();

  constructor(options: OutboundSessionsOptions) {
    this.#options = options;
  }

  /**
   * Returns the session with the fewest streams, with a place reserved for a stream opened in this turn; dials one if
   * needed.
   * @throws {SessionError} `too-many-flows`, or why the dial failed.
   */
  async take(signal: AbortSignal): Promise<OutboundHop> {
    signal.throwIfAborted();
    const open = this.#hops.filter(({ isOpen }) => isOpen);
    const least = open.reduce<OutboundHop | undefined>(
      (a, b) => (a === undefined || b.load < a.load ? b : a),
      undefined,
    );
    if (least !== undefined && least.load < FULL_STREAMS) {
      // While there is room, requests do not wait for the new session.
      if (least.load >= LOADED_STREAMS && open.length < MAX_SESSIONS) this.#raise();
      least.claim();
      return least;
    }
    if (this.#waiting.length >= (MAX_SESSIONS - open.length) * FULL_STREAMS) throw full();
    const taken = new Promise<OutboundHop>((take, fail) => void this.#waiting.push({ take, fail }));
    this.#raise();
    return untilAborted(taken, signal);
  }

  /** Retires all sessions; running streams continue. */
  retire(): void {
    for (const hop of this.#hops) hop.retire("replaced by another session");
    this.#hops = [];
  }

  /** Ends all sessions immediately and cancels a dial. */
  drop(cause: string): void {
    const error = new SessionError("tunnel-lost", cause);
    this.#scope.abort(error);
    this.#scope = new AbortController();
    this.#isRaising = false;
    this.#refuse(error);
    for (const hop of this.#hops) hop.destroy(cause);
    this.#hops = [];
  }

  #raise(): void {
    if (this.#isRaising) return;
    this.#isRaising = true;
    const { signal } = this.#scope;
    this.#options.raise(signal).then(
      (hop) => {
        // The waiting requests have already failed, and another dial may be running.
        if (signal.aborted) return hop.destroy("the path was closed in the meantime");
        this.#keep(hop);
        this.#isRaising = false;
        this.#serve(hop);
      },
      (error: unknown) => {
        if (signal.aborted) return;
        this.#isRaising = false;
        this.#refuse(toError(error));
      },
    );
  }

  #keep(hop: OutboundHop): void {
    countRequests(hop);
    retireUnused(this.#options.clock, hop);
    this.#hops = [...this.#hops, hop];
    void hop.closing.then(() => {
      this.#hops = this.#hops.filter((one) => one !== hop);
    });
  }

  #serve(hop: OutboundHop): void {
    const room = Math.max(0, FULL_STREAMS - hop.load);
    for (const { take } of this.#waiting.splice(0, room)) {
      hop.claim();
      take(hop);
    }
    if (this.#waiting.length === 0) return;
    if (this.#hops.length < MAX_SESSIONS) this.#raise();
    else this.#refuse(full());
  }

  #refuse(error: Error): void {
    for (const { fail } of this.#waiting.splice(0)) fail(error);
  }
}

function full(): SessionError {
  return new SessionError("too-many-flows", `${MAX_SESSIONS} sessions to the gateway are full`);
}
