import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Rollback, Withheld } from "../../checkpoint/commit-files.ts";
import type { Clock } from "../../host/clock.ts";
import { valueOf, type StateFile } from "../../host/files/state-file.ts";
import type { Baseline, Prover, Unreached } from "./prover.ts";
import { isSameValue, type Guards } from "./work.ts";

export interface HeldChangeOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly file: StateFile<Withheld>;
  readonly prover: Prover;
  /** Reverts the documents to the confirmed ones; resolves to whether any document was reverted. */
  readonly refuse: (last: Rollback, guards: Guards) => Promise<boolean>;
  /** Called when the effective configuration may have changed. */
  readonly onRelease: () => void;
}

/** Attempts of a change whose failure may have another cause. */
const MAX_ATTEMPTS = 3;
/** The change is to blame if the control plane is reached within this time after the restore. */
const PROMPT_MS = 10_000;
const PROMPT_EVERY_MS = 1000;
const RECONSIDER_MS = 60_000;
const MAX_GATEWAYS = 64;
/** Matches evidence that the control plane's host refuses connections. */
const TURNED_AWAY = /control plane [^;]*: connection refused/;

/** Describes why a held change is not applied. */
export function whyHeld({ is, last: { code, evidence } }: Withheld): string {
  const next = is === "refused" ? "not tried again until it changes" : "tried again when the control plane is reached";
  return `rolled back (${code}: ${evidence}); ${next}`;
}

/** Reports whether two sets of sections are equal. */
function isSameGuards(one: Guards, other: Guards): boolean {
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => isSameValue(one[name], other[name]));
}

/**
 * Holds back a change that was rolled back: permanently if the restored configuration reaches the control plane, else until a session
 * returns. A change of which nothing was learned is tried again as soon as the control plane is reached. It applies to the exact value that was tried; any other desired value is not held.
 */
export class HeldChange {
  readonly #options: HeldChangeOptions;
  #held: Withheld | undefined;
  /** True while the change is being tried again. */
  #isReleased = false;
  #judging: Promise<void> | undefined;
  readonly #ending = new AbortController();
  #cancelTimer = (): void => undefined;
  /** True while the change is being rolled back; a session that opens meanwhile proves nothing. */
  #isToBeJudged = false;
  /** Time of the last rollback (monotonic). */
  #notedAt = 0;

  constructor(options: HeldChangeOptions) {
    this.#options = options;
  }

  async load(): Promise<void> {
    this.#held = valueOf(await this.#options.file.load());
    if (this.#held?.is === "waiting") this.#reconsiderLater();
  }

  /** The held change, or the last one. */
  get current(): Withheld | undefined {
    return this.#held;
  }

  /** Returns the held change that keeps this value from being applied, if any. */
  reasonFor(section: string, raw: unknown): Withheld | undefined {
    const held = this.#held;
    if (held === undefined || this.#isReleased || !Object.hasOwn(held.guards, section)) return undefined;
    return isSameValue(held.guards[section], raw) ? held : undefined;
  }

  /** Records a rollback before it starts. A change with a failed step is held only after repeated failures. */
  async note(guards: Guards, last: Rollback): Promise<void> {
    const before = this.#held;
    const isAgain = before !== undefined && isSameGuards(before.guards, guards);
    const attempts = (isAgain ? before.attempts : 0) + 1;
    this.#isToBeJudged = last.by === "agent" && last.code === "not-proven";
    this.#notedAt = this.#options.clock.elapsed();
    this.#isReleased = last.code === "step-failed" && attempts < MAX_ATTEMPTS;
    await this.#keep({ guards, last, attempts, is: "waiting" });
    if (!this.#isReleased) this.#reconsiderLater();
  }

  /** Decides whether the change that was just rolled back is to blame, if that can be told. */
  judge(): void {
    this.#isToBeJudged = false;
    const held = this.#held;
    if (held === undefined || this.#isReleased || held.is === "refused" || this.#judging !== undefined) return;
    const { code } = held.last;
    if (code === "not-kept" || code === "reverted") this.#run(() => this.#refuse(held));
    else if (code === "not-proven" || code === "step-failed") this.#run(() => this.#refuseIfReached(held));
  }

  /** Handles a new session over the restored configuration: retries the held change, unless its attempts are used up. */
  sessionOpened(): void {
    const held = this.#held;
    if (this.#isToBeJudged) return;
    if (held === undefined || this.#isReleased || held.is === "refused" || this.#judging !== undefined) return;
    const { code, mode, evidence, wasTried = false } = held.last;
    // A change interrupted after a failed attempt counts as failed.
    const isOver = (code === "rebooted" && mode === "try") || (wasTried && !TURNED_AWAY.test(evidence));
    if (isOver || held.attempts >= MAX_ATTEMPTS) {
      this.#run(() => this.#refuse(held));
      return;
    }
    this.#tryAgain(held);
  }

  /**
   * Returns the targets that a change has to reach: after a late end also the gateways of the first attempt. Sessions and paths of now may
   * not have returned yet.
   */
  baselineFor(guards: Guards, now: Baseline): Baseline {
    const held = this.#held;
    if (held?.last.isLate !== true || !isSameGuards(held.guards, guards)) return now;
    const gateways = new Set([...(held.last.gateways ?? []), ...now.gateways]);
    return { session: true, gateways: [...gateways].slice(0, MAX_GATEWAYS) };
  }

  /** Removes the held change: it was proven, or requested again. */
  async forget(guards: Guards): Promise<void> {
    if (this.#held === undefined || !isSameGuards(this.#held.guards, guards)) return;
    this.#cancelTimer();
    this.#held = undefined;
    this.#isReleased = false;
    await this.#options.file.remove().catch((error: unknown) => this.#notSaved(error));
  }

  close(): void {
    this.#cancelTimer();
    this.#ending.abort();
  }

  #tryAgain({ attempts, last: { code } }: Withheld): void {
    this.#options.log.info({ attempts, after: code }, "trying a rolled-back change again");
    this.#isReleased = true;
    this.#options.onRelease();
  }

  async #refuseIfReached(held: Withheld): Promise<void> {
    const { clock, log } = this.#options;
    // Refused connections may mean that the control plane restarts, as may a gateway that stayed reachable: do not blame the change at the
    // first attempt.
    const { evidence, isHeard = false, isLate = false, gateways = [] } = held.last;
    if ((TURNED_AWAY.test(evidence) || isHeard) && held.attempts < MAX_ATTEMPTS) return;
    const until = clock.elapsed() + PROMPT_MS;
    for (;;) {
      const unreached = await this.#missed(gateways);
      // Another change was rolled back meanwhile.
      if (this.#held !== held) return;
      if (unreached === undefined) {
        if (isLate && held.attempts < MAX_ATTEMPTS) return this.#tryAgain(held);
        return (await this.#wasAbsent(held)) ? undefined : this.#refuse(held);
      }
      log.info({ target: unreached.target, reason: unreached.message }, "not reached after the restore either");
      if (clock.elapsed() >= until) {
        // Without the change it is not reached either.
        if (isLate && unreached.isGateway === true) await this.#keep({ ...held, last: { ...held.last, gateways: [] } });
        return;
      }
      await clock.sleep(PROMPT_EVERY_MS, this.#ending.signal);
    }
  }

  /** Reports whether the control plane itself was down during the attempt; its word counts for at most `MAX_ATTEMPTS` attempts. */
  async #wasAbsent({ last: { silentMs }, attempts }: Withheld): Promise<boolean> {
    if (silentMs === undefined || attempts >= MAX_ATTEMPTS) return false;
    const { prover, clock, log } = this.#options;
    const servingMs = await prover.servingMs(this.#ending.signal);
    if (servingMs === undefined || servingMs >= silentMs + (clock.elapsed() - this.#notedAt)) return false;
    log.info({ servingMs }, "the control plane restarted during the change");
    return true;
  }

  /** Returns the first unreachable target after the restore: the control plane, or the gateways that alone were missed. */
  async #missed(gateways: readonly string[]): Promise<Unreached | undefined> {
    const { prover } = this.#options;
    const { signal } = this.#ending;
    if (gateways.length === 0) return prover.controlPlane(signal);
    const unreached = await prover.attempt({ session: true, gateways: [...gateways] }, signal);
    signal.throwIfAborted();
    return unreached[0];
  }

  async #refuse(held: Withheld): Promise<void> {
    if (this.#held !== held) return;
    this.#cancelTimer();
    const { refuse, log, onRelease } = this.#options;
    const isGone = await refuse(held.last, held.guards).catch((error: unknown) => {
      log.warn({ err: toError(error) }, "no document could go back");
      return false;
    });
    log.warn({ code: held.last.code, evidence: held.last.evidence, isGone }, "change refused");
    await this.#keep({ ...held, is: "refused" });
    onRelease();
  }

  #run(work: () => Promise<void>): void {
    this.#judging = work()
      .catch((error: unknown) => {
        if (!this.#ending.signal.aborted) this.#options.log.error({ err: toError(error) }, "not judged");
      })
      .finally(() => {
        this.#judging = undefined;
      });
  }

  /** Re-evaluates later: a session that stayed open sends no event. */
  #reconsiderLater(): void {
    this.#cancelTimer();
    this.#cancelTimer = this.#options.clock.after(RECONSIDER_MS, () => {
      this.#reconsiderLater();
      this.#isToBeJudged = false;
      const held = this.#held;
      if (this.#options.prover.baseline().session) this.sessionOpened();
      else if (
        held?.is === "waiting" &&
        held.last.isLate === true &&
        !this.#isReleased &&
        this.#judging === undefined
      ) {
        this.#run(() => this.#refuseIfReached(held));
      }
    });
  }

  async #keep(held: Withheld): Promise<void> {
    this.#held = held;
    await this.#options.file.save(held).catch((error: unknown) => this.#notSaved(error));
  }

  #notSaved(error: unknown): void {
    this.#options.log.warn({ err: toError(error) }, "not saved");
  }
}
