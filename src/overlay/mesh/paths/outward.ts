import { SessionError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import { untilAborted } from "../../../lib/until-aborted.ts";
import { countRequests, retireUnused, type OutwardHop } from "./hop.ts";

export interface OutwardOptions {
  readonly clock: Clock;
  /** Dials another one. */
  readonly raise: (signal: AbortSignal) => Promise<OutwardHop>;
}

const MAX_SESSIONS = 2;
/** With this many streams on each session, another is dialled if there may be one; beyond the other, none is taken. */
const LOADED_STREAMS = 200;
const FULL_STREAMS = 256;

/** The sessions of one path on which this node opens streams: none until the first need, a second only under load. */
export class Outward {
  readonly #options: OutwardOptions;
  #hops: readonly OutwardHop[] = [];
  #raising: Promise<OutwardHop> | undefined;
  #scope = new AbortController();

  constructor(options: OutwardOptions) {
    this.#options = options;
  }

  /** The session with the fewest streams, dialled if need be. @throws {SessionError} `too-many-flows`, or why it cannot be had. */
  async take(signal: AbortSignal): Promise<OutwardHop> {
    signal.throwIfAborted();
    const open = this.#hops.filter(({ isOpen }) => isOpen).sort((a, b) => a.streams - b.streams);
    const [least] = open;
    if (least !== undefined && least.streams < LOADED_STREAMS) return least;
    const mayRaise = open.length < MAX_SESSIONS;
    if (least !== undefined && least.streams < FULL_STREAMS) {
      // Nobody waits for the second while the first has room.
      if (mayRaise) void this.#raise().catch(() => undefined);
      return least;
    }
    if (!mayRaise) throw new SessionError("too-many-flows", "the sessions to the gateway are full");
    return untilAborted(this.#raise(), signal);
  }

  /** Takes no more for what there is, which goes on until its streams end. */
  retire(): void {
    for (const hop of this.#hops) hop.retire("another session has taken its place");
    this.#hops = [];
  }

  /** Ends every session at once, and gives up a dial under way. */
  drop(cause: string): void {
    this.#scope.abort(new SessionError("tunnel-lost", cause));
    this.#scope = new AbortController();
    this.#raising = undefined;
    for (const hop of this.#hops) hop.destroy(cause);
    this.#hops = [];
  }

  #raise(): Promise<OutwardHop> {
    const { clock, raise } = this.#options;
    const { signal } = this.#scope;
    const raising = (this.#raising ??= raise(signal)
      .then((hop) => {
        countRequests(hop);
        retireUnused(clock, hop);
        this.#hops = [...this.#hops, hop];
        void hop.closing.then(() => {
          this.#hops = this.#hops.filter((one) => one !== hop);
        });
        return hop;
      })
      .finally(() => {
        if (this.#raising === raising) this.#raising = undefined;
      }));
    return raising;
  }
}
