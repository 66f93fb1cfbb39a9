import type { Logger } from "pino";
import { buildInfo, buildTime } from "../../lib/build-info.ts";
import type { Clock } from "../../host/clock.ts";
import type { StateFile } from "../../host/files/state-file.ts";
import type { Reason } from "../../protocol/documents/reconcile.ts";
import type { EventLog } from "./events.ts";
import {
  CLOCK_LIMITS_S,
  clockBehindText,
  judgeClock,
  leastTime,
  type ClockBehind,
  type KnownTimeRecord,
} from "../../protocol/local/known-time.ts";

const SAVE_EVERY_MS = 24 * 3600 * 1000;

export interface KnownTimeOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly file: Pick<StateFile<KnownTimeRecord>, "save">;
  /** Time stored by the previous run. */
  readonly kept: KnownTimeRecord | undefined;
  /** Build time of this program, in Unix milliseconds. */
  readonly builtAt: number | undefined;
  readonly onFault: (error: unknown) => void;
}

/** A time received from a source, and the monotonic time of its receipt. */
interface ReceivedTime {
  readonly at: number;
  readonly sinceBoot: number;
}

/** Lower bound of the current time, used to check the wall clock and to replace it while it is behind. */
export class KnownTime {
  readonly #options: KnownTimeOptions;
  readonly #startedAt: number;
  #received: ReceivedTime | undefined;
  #savedAt: number | undefined;
  #behindSince: number | undefined;
  /** Returns the machine's clock, but never less than the known time; used for everything that leaves this machine. */
  readonly stamps: Clock;

  constructor(options: KnownTimeOptions) {
    this.#options = options;
    const { clock, kept } = options;
    this.#startedAt = clock.sinceBoot();
    this.#savedAt = kept?.at;
    this.stamps = {
      now: () => this.best(),
      elapsed: () => clock.elapsed(),
      sinceBoot: () => clock.sinceBoot(),
      sleep: (ms, signal) => clock.sleep(ms, signal),
      after: (ms, run) => clock.after(ms, run),
    };
    this.refresh();
  }

  /** Returns the wall clock, or the lower bound while the clock is behind; Unix milliseconds. */
  best(): number {
    return this.behind()?.knownAt ?? this.#options.clock.now();
  }

  behind(): ClockBehind | undefined {
    const { clock, builtAt, kept } = this.#options;
    const elapsed = clock.sinceBoot() - this.#startedAt;
    // A control plane corrects the stored time, also downwards.
    const receivedAt = this.#receivedNow() ?? (kept === undefined ? undefined : kept.at + elapsed);
    return judgeClock(clock.now(), leastTime(builtAt === undefined ? undefined : builtAt + elapsed, receivedAt));
  }

  /** Seconds by which the wall clock is ahead of the control plane's last time; undefined before the first session. */
  offsetSeconds(): number | undefined {
    const received = this.#receivedNow();
    return received === undefined ? undefined : (this.#options.clock.now() - received) / 1000;
  }

  /** Time since which the clock is behind, by the clock itself. */
  get behindSince(): number | undefined {
    return this.refresh() === undefined ? undefined : this.#behindSince;
  }

  /** Takes the time of a session, in Unix milliseconds. Stores it if the stored time is a day older, or later. */
  receive(at: number): void {
    this.#received = { at, sinceBoot: this.#options.clock.sinceBoot() };
    this.refresh();
    const ahead = at - (this.#savedAt ?? Number.NEGATIVE_INFINITY);
    if (ahead < 0 || ahead >= SAVE_EVERY_MS) void this.#save(at);
  }

  /** Stores the current lower bound at the end, if a control plane gave the time. */
  async stopped(): Promise<void> {
    const received = this.#receivedNow();
    if (received !== undefined) await this.#save(received);
  }

  /** Checks whether the clock became right or wrong, and logs a change once. */
  refresh(): ClockBehind | undefined {
    const { clock, log } = this.#options;
    const behind = this.behind();
    if (behind !== undefined && this.#behindSince === undefined) {
      this.#behindSince = behind.clockAt;
      log.warn({ code: behind.state, ...behind }, clockBehindText(behind).message);
    } else if (behind === undefined && this.#behindSince !== undefined) {
      this.#behindSince = undefined;
      log.info({ now: clock.now() }, "the clock was set");
    }
    return behind;
  }

  #receivedNow(): number | undefined {
    return this.#received === undefined
      ? undefined
      : this.#received.at + (this.#options.clock.sinceBoot() - this.#received.sinceBoot);
  }

  async #save(at: number): Promise<void> {
    const { file, onFault } = this.#options;
    this.#savedAt = at;
    await file.save({ at: Math.max(0, Math.round(at)) }).catch(onFault);
  }
}

/** Lower bound from the build time and the state directory. */
export function openKnownTime(parts: {
  readonly clock: Clock;
  readonly log: Logger;
  readonly state: { readonly knownTime: KnownTimeOptions["file"] };
  readonly lastGood: { readonly knownTime: KnownTimeRecord | undefined };
  readonly onFault: KnownTimeOptions["onFault"];
}): KnownTime {
  const { state, lastGood, ...rest } = parts;
  return new KnownTime({ ...rest, file: state.knownTime, kept: lastGood.knownTime, builtAt: buildTime(buildInfo) });
}

/** Explains timestamps that differ from the machine's clock. */
export function clockReasons(time: Pick<KnownTime, "refresh" | "behindSince">): Reason[] {
  const behind = time.refresh();
  if (behind === undefined) return [];
  const since = Math.max(0, Math.round(time.behindSince ?? behind.clockAt));
  const { message, fix } = clockBehindText(behind);
  return [{ section: "clock", code: behind.state, message: `${message}: ${fix}`, since, lastAttempt: behind.clockAt }];
}

/** Raises the event for a clock that differs from the control plane's by more than the limit, and clears it. */
export function reportClock(time: Pick<KnownTime, "offsetSeconds">, events: Pick<EventLog, "raise" | "clear">): void {
  const offset = time.offsetSeconds();
  if (offset === undefined) return;
  const about = { eventType: "Clock Offset", object: "clock", details: { offsetSeconds: Math.round(offset) } };
  if (Math.abs(offset) > CLOCK_LIMITS_S.fail) {
    const message = `This machine's clock is ${Math.round(Math.abs(offset))} s ${offset < 0 ? "behind" : "ahead of"} the control plane's`;
    events.raise({ ...about, level: "ERROR", message });
  } else if (Math.abs(offset) <= CLOCK_LIMITS_S.warn) {
    events.clear({ ...about, message: "This machine's clock agrees with the control plane's" });
  }
}
