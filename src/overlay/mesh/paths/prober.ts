import type { Clock } from "../../../host/clock.ts";
import { answered, BUSY_MS, evaluate, lossOf, newProbing, nextEvaluationAt, type Probing } from "./probing.ts";

/** A session as far as probing it goes. Bytes are those of its socket since it was opened. */
export interface Probed {
  /** Sends a probe; `onAnswer` is called when it comes back, if it does. */
  ping(onAnswer: () => void): void;
  bytesRead(): number;
  bytesWritten(): number;
  hasStreams(): boolean;
  /** Whether the other side probes as well. */
  isProbed(): boolean;
}

export interface ProberUser {
  /** A probe was sent at this wall-clock time. */
  sent(at: number): void;
  answered(sentAt: number, rttMs: number): void;
  /** A probe is overdue and nothing else came. */
  missed?(): void;
  /** Nothing comes back; `since` is the monotonic time of the first unanswered probe. Called once. */
  down(since: number): void;
}

/** What one probe and its answer, or the other side's, move at most. */
const PROBE_BYTES = 160;

/** Probes one session for as long as it is not closed, more often while something moves on it. */
export class Prober {
  readonly #clock: Clock;
  readonly #session: Probed;
  readonly #user: ProberUser;
  #state: Probing;
  #cancel: (() => void) | undefined;
  #isClosed = false;
  #read = 0;
  #moved = 0;
  /** Answers that are still awaited, each probe sent on the answer to the one before. */
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

  /** Whether probes are overdue at this moment and nothing else came. */
  get isInTrouble(): boolean {
    this.#evaluate();
    return !this.#isClosed && this.#state.missed > 0;
  }

  get loss(): number {
    return lossOf(this.#state);
  }

  /** Begins to probe; resolves after so many answers, which are asked for without a pause. */
  prove(answers: number): Promise<void> {
    return new Promise((resolve) => {
      this.#proving = { left: answers, done: resolve };
      this.probeNow();
    });
  }

  /** Probes at once, and soon again if nothing comes back. */
  probeNow(): void {
    this.#state = { ...this.#state, lastSentAt: -Infinity, skippedAt: -Infinity };
    this.#evaluate();
  }

  /** Something is about to move: probes unless it was just done. */
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
      // An answer is no sign that the other side sends anything of its own.
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
