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
  /** What was kept by the last run. */
  readonly kept: KnownTimeRecord | undefined;
  /** When this program was built, in Unix milliseconds. */
  readonly builtAt: number | undefined;
  readonly onFault: (error: unknown) => void;
}

/** A moment that somebody told, and when in the machine's own time. */
interface Told {
  readonly at: number;
  readonly sinceBoot: number;
}

/** What time it is at least: what the wall clock is judged by, and what stands in for it while it is behind. */
export class KnownTime {
  readonly #options: KnownTimeOptions;
  readonly #startedAt: number;
  #told: Told | undefined;
  #savedAt: number | undefined;
  #behindSince: number | undefined;
  /** As the machine's clock, and never less than what is known: for whatever leaves this machine. */
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
    this.look();
  }

  /** The wall clock, or while that is behind the least that it can be; Unix milliseconds. */
  best(): number {
    return this.behind()?.knownAt ?? this.#options.clock.now();
  }

  behind(): ClockBehind | undefined {
    const { clock, builtAt, kept } = this.#options;
    const elapsed = clock.sinceBoot() - this.#startedAt;
    // A control plane corrects what was kept, also downwards.
    const toldAt = this.#toldNow() ?? (kept === undefined ? undefined : kept.at + elapsed);
    return judgeClock(clock.now(), leastTime(builtAt === undefined ? undefined : builtAt + elapsed, toldAt));
  }

  /** By how many seconds the wall clock is ahead of what the control plane told last; undefined before the first session. */
  offsetSeconds(): number | undefined {
    const told = this.#toldNow();
    return told === undefined ? undefined : (this.#options.clock.now() - told) / 1000;
  }

  /** Since when the clock is behind, by the clock itself. */
  get behindSince(): number | undefined {
    return this.look() === undefined ? undefined : this.#behindSince;
  }

  /** A session gave the time, in Unix milliseconds. It is kept when what is on disk is a day older, or later. */
  told(at: number): void {
    this.#told = { at, sinceBoot: this.#options.clock.sinceBoot() };
    this.look();
    const ahead = at - (this.#savedAt ?? Number.NEGATIVE_INFINITY);
    if (ahead < 0 || ahead >= SAVE_EVERY_MS) void this.#save(at);
  }

  /** The agent ends: what a control plane told is kept as far as it has come. */
  async stopped(): Promise<void> {
    const told = this.#toldNow();
    if (told !== undefined) await this.#save(told);
  }

  /** Looks whether the clock has become right or wrong, and says so once. */
  look(): ClockBehind | undefined {
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

  #toldNow(): number | undefined {
    return this.#told === undefined
      ? undefined
      : this.#told.at + (this.#options.clock.sinceBoot() - this.#told.sinceBoot);
  }

  async #save(at: number): Promise<void> {
    const { file, onFault } = this.#options;
    this.#savedAt = at;
    await file.save({ at: Math.max(0, Math.round(at)) }).catch(onFault);
  }
}

/** As this program and its state directory know it. */
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

/** Why things may be stamped otherwise than by the clock of the machine. */
export function clockReasons(time: Pick<KnownTime, "look" | "behindSince">): Reason[] {
  const behind = time.look();
  if (behind === undefined) return [];
  const since = Math.max(0, Math.round(time.behindSince ?? behind.clockAt));
  const { message, fix } = clockBehindText(behind);
  return [{ section: "clock", code: behind.state, message: `${message}: ${fix}`, since, lastAttempt: behind.clockAt }];
}

/** Raises the event about a clock that differs from the control plane's by more than the limit, and clears it once that is over. */
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
