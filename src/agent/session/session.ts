import type { Logger } from "pino";
import { wallTimes, type WallTimes } from "../../host/clock.ts";
import { SessionError } from "../../errors.ts";
import { AnswerWatch, unansweredText } from "./answers.ts";
import { Attempt, type AttemptOptions, type Connection } from "./attempt.ts";
import type { Random } from "../../lib/async/backoff.ts";
import { lossText, NO_LOSSES, repeatedLoss, withLoss } from "./losses.ts";
import { beginSession, deadlineOf, step, type Effect, type SessionEvent, type SessionState } from "./machine.ts";
import { defined } from "../../lib/defined.ts";

export interface SessionOptions extends Omit<AttemptOptions, "answers"> {
  readonly log: Logger;
  readonly random: Random;
  readonly onOnline: (connection: Connection) => void;
  readonly onOffline: () => void;
  /** The control plane stated that it deleted this node. */
  readonly onDeleted: () => void;
}

/** The state of the session for people; times in Unix milliseconds. */
export interface SessionStatus {
  readonly state: "waiting" | "connecting" | "online" | "stopped";
  readonly since: number;
  readonly attempt: number;
  readonly retryAt?: number;
  readonly reason?: { readonly code: string; readonly message: string };
  readonly address?: string;
  readonly rttMs?: number;
  readonly sid?: string;
  readonly heartbeatAt?: number;
  readonly lastOnlineAt?: number;
  /** Requests that the control plane does not answer correctly, described for a person. */
  readonly unanswered?: { readonly since: number; readonly message: string };
  /** Four losses or more in the last ten minutes, and the last cause, for a person. */
  readonly lost?: { readonly since: number; readonly message: string };
}

/** Owns the session with the control plane: connects, keeps it alive, and reconnects. */
export class Session {
  readonly #options: SessionOptions;
  readonly #answers = new AnswerWatch();
  #state: SessionState;
  #cancelTimer = (): void => undefined;
  #armedFor: number | undefined;
  #attempt: Attempt | undefined;
  #attempts = 0;
  readonly #wall: WallTimes;
  /** This and the following times are monotonic milliseconds. */
  #since: number;
  #reason: { code: string; message: string } | undefined;
  #lastOnlineAt: number | undefined;
  #losses = NO_LOSSES;
  /** When something was received that the state does not include yet. */
  #heardAt: number | undefined;

  constructor(options: SessionOptions) {
    this.#options = options;
    this.#state = beginSession(options.clock.elapsed());
    this.#wall = wallTimes(options.clock);
    this.#since = options.clock.elapsed();
  }

  start(): void {
    this.#dispatch({ type: "timer" });
  }

  /** Tries at once: a link changed, the machine resumed, or an operator asked. */
  wake(cause: "network" | "resumed" | "operator"): void {
    this.#dispatch({ type: "wake", cause });
  }

  close(): void {
    this.#dispatch({ type: "stop" });
  }

  get connection(): Connection | undefined {
    return this.#attempt?.connection;
  }

  /** Milliseconds by which the next action is overdue; many if its timer was lost. */
  get overdueMs(): number {
    const at = this.#armedFor;
    return at === undefined ? 0 : Math.max(0, this.#options.clock.elapsed() - at);
  }

  status(): SessionStatus {
    const state = this.#state;
    const rttMs = this.#attempt?.rttMs;
    const heartbeatAt = this.connection === undefined ? undefined : this.#attempt?.heartbeatAt;
    return {
      state: state.at,
      since: this.#wall.of(this.#since),
      attempt: this.#attempts,
      ...(state.at === "waiting" ? { retryAt: this.#wall.of(state.retryAt) } : {}),
      ...defined({ reason: this.#reason }),
      ...(this.#attempt?.address === undefined ? {} : { address: this.#attempt.address }),
      ...defined({ rttMs }),
      ...(this.connection === undefined ? {} : { sid: this.connection.sid }),
      ...(heartbeatAt === undefined ? {} : { heartbeatAt: this.#wall.of(heartbeatAt) }),
      ...(this.#lastOnlineAt === undefined ? {} : { lastOnlineAt: this.#wall.of(this.#lastOnlineAt) }),
      ...this.#unanswered(),
      ...this.#lost(),
    };
  }

  #lost(): Pick<SessionStatus, "lost"> {
    const repeated = repeatedLoss(this.#losses, this.#options.clock.elapsed());
    if (repeated === undefined) return {};
    return { lost: { since: this.#wall.of(repeated.since), message: lossText(repeated) } };
  }

  #unanswered(): Pick<SessionStatus, "unanswered"> {
    const failing = this.#answers.failing(this.#options.clock.elapsed());
    const [oldest] = failing;
    if (oldest === undefined) return {};
    const since = this.#wall.of(oldest.since);
    return { unanswered: { since, message: failing.slice(0, 4).map(unansweredText).join("; ") } };
  }

  #dispatch(event: SessionEvent): void {
    const { clock, random } = this.#options;
    const before = this.#state.at;
    // Data arrives in thousands of pieces, and only the last one before a decision matters.
    if (this.#heardAt !== undefined) [this.#state] = step(this.#state, { type: "heard" }, this.#heardAt, random);
    this.#heardAt = undefined;
    const [state, effects] = step(this.#state, event, clock.elapsed(), random);
    this.#state = state;
    if (state.at !== before) {
      // An outage is dated from its first moment; attempts do not change that.
      if (state.at === "online" || before === "online" || state.at === "stopped") this.#since = clock.elapsed();
      if (before === "online") {
        this.#lastOnlineAt = clock.elapsed();
        this.#options.onOffline();
      }
    }
    for (const effect of effects) this.#carryOut(effect);
    if (before === "online" && state.at === "waiting") {
      this.#losses = withLoss(this.#losses, clock.elapsed(), this.#reason?.message ?? "unknown");
    }
    this.#arm();
  }

  #arm(): void {
    const at = deadlineOf(this.#state);
    if (at === this.#armedFor) return;
    this.#cancelTimer();
    this.#armedFor = at;
    if (at === undefined) return;
    const { clock } = this.#options;
    this.#cancelTimer = clock.after(Math.max(0, at - clock.elapsed()), () => {
      this.#armedFor = undefined;
      this.#dispatch({ type: "timer" });
    });
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
        if (effect.reason !== "shutdown") {
          this.#reason = { code: effect.reason, message: EXPLAINED[effect.reason] };
          this.#options.log.warn({ code: effect.reason, reason: EXPLAINED[effect.reason] }, "no session");
        }
        ended?.end(new SessionError(effect.reason, EXPLAINED[effect.reason]));
      }
    }
  }

  #dial(): void {
    const attempt: Attempt = new Attempt(
      { ...this.#options, answers: this.#answers },
      {
        onHeard: () => {
          if (this.#attempt === attempt && this.#state.at === "online") this.#heardAt = this.#options.clock.elapsed();
        },
        onOpened: (connection) => {
          if (this.#attempt !== attempt) return;
          this.#reason = undefined;
          this.#lastOnlineAt = this.#options.clock.elapsed();
          this.#dispatch({ type: "opened" });
          this.#options.log.info({ sid: connection.sid, address: attempt.address }, "session opened");
          this.#options.onOnline(connection);
        },
        onEnded: (ending, error) => {
          if (this.#attempt !== attempt) return;
          this.#attempt = undefined;
          this.#reason = { code: error.code, message: error.message };
          this.#dispatch({ type: "ended", ending });
          this.#options.log.warn({ code: error.code, reason: error.message, ending: ending.kind }, "no session");
          if (ending.kind === "deleted") this.#options.onDeleted();
        },
      },
    );
    this.#attempt = attempt;
    void attempt.run();
  }
}

const EXPLAINED = {
  silent: "nothing was received for 37.5 s",
  "handshake-timeout": "the handshake did not finish within 10 s",
  shutdown: "the agent is stopping",
} as const;
