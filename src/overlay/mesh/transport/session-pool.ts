import { SessionError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import { MAX_STREAMS } from "./http2.ts";

/** An HTTP/2 session on which this node opens streams. */
export interface PooledSession {
  /** Number of open and reserved streams. */
  readonly load: number;
  readonly maxStreams: number;
  /** Reports whether streams may be opened. */
  readonly isOpen: boolean;
  /** Resolves when no new stream may start. */
  readonly closing: Promise<unknown>;
  /** Called when the last stream has closed, and when the first opens. */
  onIdle: (isIdle: boolean) => void;
  /** Reserves room for a stream that is opened soon. */
  reserve(): void;
  /** Accepts no new streams; running streams continue. */
  retire(cause: string): void;
  /** Ends it and all its streams. */
  destroy(cause: string): void;
}

export interface SessionPoolOptions<Session> {
  readonly clock: Pick<Clock, "after">;
  /** Dials another session. */
  readonly open: (signal: AbortSignal) => Promise<Session>;
  /** Maximum number of concurrent dials. */
  readonly maxDials: number;
  /** Name of the other side in errors. */
  readonly to: string;
}

/** Enough for 10,000 flows, the usual limit of a connector. */
export const MAX_SESSIONS = 40;
/** Number of streams per session at which another is dialled, up to the maximum. */
export const LOADED_STREAMS = 200;
const UNUSED_MS = 60_000;

interface Waiter<Session> {
  readonly take: (session: Session) => void;
  readonly fail: (error: unknown) => void;
}

/**
 * Sessions with one other node: dialled on demand, more under load, closed after 60 s without streams. Sessions that the
 * other node dialled are not in a pool, since no more of them can be had.
 */
export class SessionPool<Session extends PooledSession> {
  readonly #options: SessionPoolOptions<Session>;
  #sessions: readonly Session[] = [];
  #dials = 0;
  /** Requests that wait for the next session, in order. */
  readonly #waiting = new Set<Waiter<Session>>();
  #scope = new AbortController();

  constructor(options: SessionPoolOptions<Session>) {
    this.#options = options;
  }

  /**
   * Returns the session with the fewest streams, with room reserved for one more; dials one if needed.
   * @throws {SessionError} `too-many-flows`, or why the dial failed.
   */
  async take(signal?: AbortSignal): Promise<Session> {
    signal?.throwIfAborted();
    const open = this.#open();
    const least = open.reduce<Session | undefined>((a, b) => (a === undefined || b.load < a.load ? b : a), undefined);
    if (least !== undefined && least.load < least.maxStreams) {
      // While there is room, requests do not wait for the new session.
      if (least.load >= LOADED_STREAMS && this.#dials === 0 && open.length < MAX_SESSIONS) this.#dial();
      least.reserve();
      return least;
    }
    if (this.#waiting.size >= (MAX_SESSIONS - open.length) * MAX_STREAMS) throw this.#full();
    const taken = this.#wait(signal);
    this.#dialForWaiting();
    return taken;
  }

  /** Retires all sessions; running streams continue. */
  retire(cause: string): void {
    for (const session of this.#sessions) session.retire(cause);
    this.#sessions = [];
  }

  /** Ends all sessions, cancels the dials, and fails what waits for them. */
  drop(error: SessionError): void {
    this.#scope.abort(error);
    this.#scope = new AbortController();
    this.#dials = 0;
    this.#refuse(error);
    for (const session of this.#sessions) session.destroy(error.message);
    this.#sessions = [];
  }

  #open(): readonly Session[] {
    return this.#sessions.filter(({ isOpen }) => isOpen);
  }

  #wait(signal: AbortSignal | undefined): Promise<Session> {
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        this.#waiting.delete(waiter);
        signal?.removeEventListener("abort", abort);
      };
      const waiter: Waiter<Session> = {
        take(session) {
          leave();
          session.reserve();
          resolve(session);
        },
        fail(error) {
          leave();
          reject(toError(error));
        },
      };
      const abort = (): void => waiter.fail(signal?.reason);
      signal?.addEventListener("abort", abort);
      this.#waiting.add(waiter);
    });
  }

  #dialForWaiting(): void {
    const { maxDials } = this.#options;
    while (
      this.#waiting.size > this.#dials * MAX_STREAMS &&
      this.#dials < maxDials &&
      this.#open().length + this.#dials < MAX_SESSIONS
    )
      this.#dial();
  }

  #dial(): void {
    this.#dials += 1;
    const { signal } = this.#scope;
    this.#options.open(signal).then(
      (session) => {
        // The requests that waited have already failed, and other dials may be running.
        if (signal.aborted) return session.destroy("it was closed in the meantime");
        this.#dials -= 1;
        this.#keep(session);
        this.#serve(session);
      },
      (error: unknown) => {
        if (signal.aborted) return;
        this.#dials -= 1;
        this.#refuse(toError(error));
      },
    );
  }

  #keep(session: Session): void {
    retireUnused(this.#options.clock, session);
    this.#sessions = [...this.#sessions, session];
    void session.closing.then(() => {
      this.#sessions = this.#sessions.filter((one) => one !== session);
    });
  }

  #serve(session: Session): void {
    for (const waiter of this.#waiting) {
      if (session.load >= session.maxStreams) break;
      waiter.take(session);
    }
    this.#dialForWaiting();
    if (this.#dials === 0) this.#refuse(this.#full());
  }

  /** Fails the requests for which no dial is running. */
  #refuse(error: Error): void {
    let served = this.#dials * MAX_STREAMS;
    for (const waiter of this.#waiting) {
      if (served <= 0) waiter.fail(error);
      served -= 1;
    }
  }

  #full(): SessionError {
    return new SessionError("too-many-flows", `${MAX_SESSIONS} sessions to ${this.#options.to} are full`);
  }
}

/** Retires a session after a minute without streams. */
export function retireUnused(
  clock: Pick<Clock, "after">,
  session: Pick<PooledSession, "load" | "closing" | "onIdle" | "retire">,
): void {
  let cancel = (): void => undefined;
  session.onIdle = (isIdle) => {
    cancel();
    if (isIdle) cancel = clock.after(UNUSED_MS, () => session.retire("unused for 60 s"));
  };
  session.onIdle(session.load === 0);
  void session.closing.then(() => cancel());
}
