import type { Clock } from "../../../host/clock.ts";
import { answered, BUSY_MS, evaluate, lossOf, newProbing, nextEvaluationAt, type Probing } from "./probing.ts";

/** A session as seen by its prober. Bytes are those of its socket since it was opened. */
export interface Probed {
  /** Sends a probe; calls `onAnswer` when it is answered. */
  ping(onAnswer: () => void): void;
  bytesRead(): number;
  bytesWritten(): number;
  hasStreams(): boolean;
  /** Reports whether the other side sends probes, too. */
  isProbed(): boolean;
}

export interface ProberUser {
  /** Called when a probe was sent, with the wall-clock time. */
  sent(at: number): void;
  answered(sentAt: number, rttMs: number): void;
  /** A probe is overdue and no bytes arrived. */
  missed?(): void;
  /** Nothing arrives any more; `since` is the monotonic time of the first unanswered probe. Called once. */
  down(since: number): void;
}

/** Maximum bytes of a probe and its answer. */
const PROBE_BYTES = 160;

/** Probes a session until it is closed, more often under traffic. */
export class Prober {
  readonly #clock: Clock;
  readonly #session: Probed;
  readonly #user: ProberUser;
  #state: Probing;
  #cancel: (() => void) | undefined;
  #isClosed = false;
  #read = 0;
  #moved = 0;
  /** Missing answers of `prove`; each answer triggers the next probe. */
  #proving: { left: number; readonly done: () => void } | undefined;

  constructor(clock: Clock, session: Probed, user: ProberUser) {
    this.#clock = clock;
    this.#session = session;
    this.#user = user;
    this.#state = newProbing(clock.elapsed());
  }

  get rttMs(): number | undefined {
    return this.#state.rttMs;
  }

  /** Reports whether probes are overdue and no bytes arrived. */
  get isInTrouble(): boolean {
    this.#evaluate();
    return !this.#isClosed && this.#state.missed > 0;
  }

  get loss(): number {
    return lossOf(this.#state);
  }

  /** Starts probing; resolves after the given number of answers, probing without a pause. */
  prove(answers: number): Promise<void> {
    return new Promise((resolve) => {
      this.#proving = { left: answers, done: resolve };
      this.probeNow();
    });
  }

  /** Probes now, and soon again if nothing arrives. */
  probeNow(): void {
    this.#state = { ...this.#state, lastSentAt: -Infinity, skippedAt: -Infinity };
    this.#evaluate();
  }

  /** Probes before new traffic, unless a probe was just sent. */
  hurry(): void {
    if (this.#clock.elapsed() - this.#state.lastSentAt >= BUSY_MS) this.probeNow();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel?.();
  }

  #evaluate(): void {
    if (this.#isClosed) return;
    const now = this.#clock.elapsed();
    const read = this.#session.bytesRead();
    const moved = read + this.#session.bytesWritten();
    const isBusy = this.#session.hasStreams() && moved - this.#moved > PROBE_BYTES;
    const maySkip = this.#session.isProbed();
    const [state, probe] = evaluate(this.#state, { gotBytes: read !== this.#read, isBusy, maySkip }, now);
    this.#state = state;
    this.#read = read;
    this.#moved = moved;
    if (probe.kind === "down") {
      this.close();
      this.#user.down(probe.since);
      return;
    }
    if (probe.kind === "send") this.#send(probe.id);
    this.#arm();
    if (state.missed > 0) this.#user.missed?.();
  }

  #send(id: number): void {
    const sentAt = this.#clock.now();
    this.#user.sent(sentAt);
    this.#session.ping(() => {
      if (this.#isClosed) return;
      // The bytes of an answer do not count as other traffic.
      this.#read = this.#session.bytesRead();
      const [state, rttMs] = answered(this.#state, id, this.#clock.elapsed());
      this.#state = state;
      if (rttMs === undefined) return;
      this.#user.answered(sentAt, rttMs);
      this.#proved();
      this.#arm();
    });
  }

  #proved(): void {
    const proving = this.#proving;
    if (proving === undefined) return;
    proving.left -= 1;
    if (proving.left > 0) return this.probeNow();
    this.#proving = undefined;
    proving.done();
  }

  #arm(): void {
    this.#cancel?.();
    if (this.#isClosed) return;
    const at = nextEvaluationAt(this.#state, this.#session.hasStreams());
    this.#cancel = this.#clock.after(Math.max(1, at - this.#clock.elapsed()), () => this.#evaluate());
  }
}
