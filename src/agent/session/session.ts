import { SessionError } from "../../errors.ts";
import { Attempt, type AttemptOptions, type Connection } from "./attempt.ts";
import type { Random } from "./backoff.ts";
import { beginSession, deadlineOf, step, type Effect, type SessionEvent, type SessionState } from "./machine.ts";

export interface SessionOptions extends AttemptOptions {
  readonly random: Random;
  readonly onOnline: (connection: Connection) => void;
  readonly onOffline: () => void;
}

/** Where the session stands, for people: times in Unix milliseconds. */
export interface SessionStatus {
  readonly state: "waiting" | "connecting" | "online" | "stopped";
  readonly since: number;
  readonly attempt: number;
  readonly retryAt?: number;
  readonly reason?: { readonly code: string; readonly message: string };
  readonly address?: string;
  readonly rttMs?: number;
  readonly sid?: string;
  readonly lastOnlineAt?: number;
}

/** How often a waiting node looks whether the machine slept: timers stand still meanwhile. */
const SLEEP_CHECK_MS = 2000;
/** Wall clock and monotonic clock drifting apart by this much means that the machine slept. */
const SLEPT_MS = 10_000;

/** The control-plane session: the one owner of connecting, staying connected and reconnecting. */
export class Session {
  readonly #options: SessionOptions;
  #state: SessionState;
  #cancelTimer = (): void => undefined;
  #armedFor: number | undefined;
  #attempt: Attempt | undefined;
  #attempts = 0;
  #since: number;
  #reason: { code: string; message: string } | undefined;
  #lastOnlineAt: number | undefined;
  #wallOffset: number;

  constructor(options: SessionOptions) {
    this.#options = options;
    this.#state = beginSession(options.clock.elapsed());
    this.#since = options.clock.now();
    this.#wallOffset = this.#offset();
  }

  start(): void {
    this.#dispatch({ type: "timer" });
  }

  /** Looks at once whether something can be done: a link changed, the machine woke, a person asked. */
  wake(cause: "network" | "resumed" | "operator"): void {
    this.#dispatch({ type: "wake", cause });
  }

  close(): void {
    this.#dispatch({ type: "stop" });
  }

  get connection(): Connection | undefined {
    return this.#attempt?.connection;
  }

  status(): SessionStatus {
    const { clock } = this.#options;
    const state = this.#state;
    const rttMs = this.#attempt?.rttMs;
    return {
      state: state.at,
      since: this.#since,
      attempt: this.#attempts,
      ...(state.at === "waiting" ? { retryAt: Math.round(clock.now() + state.retryAt - clock.elapsed()) } : {}),
      ...(this.#reason === undefined ? {} : { reason: this.#reason }),
      ...(this.#attempt?.address === undefined ? {} : { address: this.#attempt.address }),
      ...(rttMs === undefined ? {} : { rttMs }),
      ...(this.connection === undefined ? {} : { sid: this.connection.sid }),
      ...(this.#lastOnlineAt === undefined ? {} : { lastOnlineAt: this.#lastOnlineAt }),
    };
  }

  #dispatch(event: SessionEvent): void {
    const { clock, random } = this.#options;
    const before = this.#state.at;
    const [state, effects] = step(this.#state, event, clock.elapsed(), random);
    this.#state = state;
    if (state.at !== before) {
      this.#since = clock.now();
      if (before === "online") this.#options.onOffline();
    }
    for (const effect of effects) this.#carryOut(effect);
    this.#arm();
  }

  #arm(): void {
    const at = deadlineOf(this.#state);
    if (at === this.#armedFor) return;
    this.#cancelTimer();
    this.#armedFor = at;
    if (at === undefined) return;
    const { clock } = this.#options;
    const waitMs = Math.max(0, at - clock.elapsed());
    this.#cancelTimer = clock.after(this.#state.at === "waiting" ? Math.min(waitMs, SLEEP_CHECK_MS) : waitMs, () => {
      this.#armedFor = undefined;
      const offset = this.#offset();
      const slept = Math.abs(offset - this.#wallOffset) > SLEPT_MS;
      this.#wallOffset = offset;
      this.#dispatch(slept ? { type: "wake", cause: "resumed" } : { type: "timer" });
    });
  }

  #offset(): number {
    return this.#options.clock.now() - this.#options.clock.elapsed();
  }

  #carryOut(effect: Effect): void {
    switch (effect.do) {
      case "dial":
        this.#attempts += 1;
        this.#dial();
        return;
      case "ping":
        this.#attempt?.ping();
        return;
      case "terminate": {
        const ended = this.#attempt;
        this.#attempt = undefined;
        if (effect.reason !== "shutdown") this.#reason = { code: effect.reason, message: EXPLAINED[effect.reason] };
        ended?.end(new SessionError(effect.reason, EXPLAINED[effect.reason]));
      }
    }
  }

  #dial(): void {
    const attempt: Attempt = new Attempt(this.#options, {
      onHeard: () => {
        if (this.#attempt === attempt && this.#state.at === "online") this.#dispatch({ type: "heard" });
      },
      onOpened: (connection) => {
        if (this.#attempt !== attempt) return;
        this.#reason = undefined;
        this.#lastOnlineAt = this.#options.clock.now();
        this.#dispatch({ type: "opened" });
        this.#options.log.info({ sid: connection.sid, address: attempt.address }, "session opened");
        this.#options.onOnline(connection);
      },
      onEnded: (ending, error) => {
        if (this.#attempt !== attempt) return;
        this.#attempt = undefined;
        this.#reason = { code: error.code, message: error.message };
        if (this.#state.at === "online") this.#lastOnlineAt = this.#options.clock.now();
        this.#dispatch({ type: "ended", ending });
        this.#options.log.warn({ code: error.code, reason: error.message, ending: ending.kind }, "no session");
      },
    });
    this.#attempt = attempt;
    void attempt.run();
  }
}

const EXPLAINED = {
  silent: "nothing was received for 37.5 s",
  "handshake-timeout": "the handshake did not finish within 10 s",
  shutdown: "the agent is stopping",
} as const;
