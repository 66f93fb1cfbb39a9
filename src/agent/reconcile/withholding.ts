import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { TakenBack, Withheld } from "../../checkpoint/commit-files.ts";
import type { Clock } from "../../host/clock.ts";
import { valueOf, type StateFile } from "../../host/files/state-file.ts";
import type { Prover, Unreached } from "./prover.ts";

/** The desired values of sections by their names; null for one that is absent. */
export type Guards = Readonly<Record<string, unknown>>;

export interface WithholdingOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly file: StateFile<Withheld>;
  readonly prover: Prover;
  /** Has the documents go back to what was confirmed; resolves whether one of them did. */
  readonly refuse: (withheld: Withheld) => Promise<boolean>;
  /** What is to be applied may be otherwise than before. */
  readonly onRelease: () => void;
}

/** How often a change is tried of which nobody can say that it was to blame. */
const MAX_ATTEMPTS = 3;
/** How soon after a restore the control plane must be reached for the change to be to blame. */
const PROMPT_MS = 10_000;
const PROMPT_EVERY_MS = 1000;
const RECONSIDER_MS = 60_000;
/** The host of the control plane answers and takes no connection. */
const TURNED_AWAY = /control plane [^;]*: connection refused/;

/** Whether two values say the same; an absent section is null. Members have one order, that of the document. */
export function isSameValue(one: unknown, other: unknown): boolean {
  return JSON.stringify(one ?? null) === JSON.stringify(other ?? null);
}

/** Why what is kept back is not in force, for people. */
export function whyHeld({ is, last: { code, evidence } }: Withheld): string {
  const next = is === "refused" ? "not tried again until it changes" : "tried again when the control plane is reached";
  return `taken back (${code}: ${evidence}); ${next}`;
}

/** Whether two sets of sections say the same. */
export function isSameGuards(one: Guards, other: Guards): boolean {
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => isSameValue(one[name], other[name]));
}

/**
 * Keeps back a change that was taken back: for good when the restored configuration reaches the control plane, else until a session
 * returns. It speaks of the very value that was tried, so that whatever else is desired ends it.
 */
export class Withholding {
  readonly #options: WithholdingOptions;
  #held: Withheld | undefined;
  /** It is being tried again. */
  #isReleased = false;
  #judging: Promise<void> | undefined;
  readonly #ending = new AbortController();
  #takeBack = (): void => undefined;
  /** It is being taken back: a session that opens meanwhile says nothing yet. */
  #isToBeJudged = false;
  /** When the last change was taken back (monotonic). */
  #notedAt = 0;

  constructor(options: WithholdingOptions) {
    this.#options = options;
  }

  async load(): Promise<void> {
    this.#held = valueOf(await this.#options.file.load());
    if (this.#held?.is === "waiting") this.#reconsiderLater();
  }

  /** What is kept back, or was the last time. */
  get held(): Withheld | undefined {
    return this.#held;
  }

  /** Why this value of a section is not applied; undefined when it is. */
  reasonFor(section: string, raw: unknown): Withheld | undefined {
    const held = this.#held;
    if (held === undefined || this.#isReleased || !Object.hasOwn(held.guards, section)) return undefined;
    return isSameValue(held.guards[section], raw) ? held : undefined;
  }

  /** Notes that a change was taken back, before it is. One whose step failed is kept back only when it has often failed. */
  async note(guards: Guards, last: TakenBack): Promise<void> {
    const before = this.#held;
    const isAgain = before !== undefined && isSameGuards(before.guards, guards);
    const attempts = (isAgain ? before.attempts : 0) + 1;
    this.#isToBeJudged = last.by === "agent" && last.code === "not-proven";
    this.#notedAt = this.#options.clock.elapsed();
    this.#isReleased = last.code === "step-failed" && attempts < MAX_ATTEMPTS;
    await this.#keep({ guards, last, attempts, is: "waiting" });
    if (!this.#isReleased) this.#reconsiderLater();
  }

  /** Decides about what was taken back a moment ago, as far as that can be decided. */
  judge(): void {
    this.#isToBeJudged = false;
    const held = this.#held;
    if (held === undefined || this.#isReleased || held.is === "refused" || this.#judging !== undefined) return;
    const { code } = held.last;
    if (code === "not-kept" || code === "reverted") this.#run(() => this.#refuse(held));
    else if (code === "not-proven" || code === "step-failed") this.#run(() => this.#refuseIfReached(held));
  }

  /** There is a session, over the restored configuration: what waited for it is tried again, unless it was tried often. */
  sessionOpened(): void {
    const held = this.#held;
    if (this.#isToBeJudged) return;
    if (held === undefined || this.#isReleased || held.is === "refused" || this.#judging !== undefined) return;
    const { code, mode, evidence, wasTried = false } = held.last;
    // Cut short after nobody was reached, it is judged by that.
    const isOver = (code === "rebooted" && mode === "try") || (wasTried && !TURNED_AWAY.test(evidence));
    if (isOver || held.attempts >= MAX_ATTEMPTS) {
      this.#run(() => this.#refuse(held));
      return;
    }
    this.#options.log.info({ attempts: held.attempts, after: held.last.code }, "trying again what was taken back");
    this.#isReleased = true;
    this.#options.onRelease();
  }

  /** Forgets it: it was proven, or somebody asks for it again. */
  async forget(guards: Guards): Promise<void> {
    if (this.#held === undefined || !isSameGuards(this.#held.guards, guards)) return;
    this.#takeBack();
    this.#held = undefined;
    this.#isReleased = false;
    await this.#options.file.remove().catch((error: unknown) => this.#notSaved(error));
  }

  close(): void {
    this.#takeBack();
    this.#ending.abort();
  }

  async #refuseIfReached(held: Withheld): Promise<void> {
    const { clock, log } = this.#options;
    // Who is turned away at every door may stand before a control plane that restarts; so is not refused at the first time.
    // So may who was heard by a gateway all the while.
    const { evidence, isHeard = false, gateways = [] } = held.last;
    if ((TURNED_AWAY.test(evidence) || isHeard) && held.attempts < MAX_ATTEMPTS) return;
    const until = clock.elapsed() + PROMPT_MS;
    for (;;) {
      const unreached = await this.#missed(gateways);
      if (unreached === undefined) return (await this.#wasAbsent(held)) ? undefined : this.#refuse(held);
      log.info({ target: unreached.target, reason: unreached.message }, "not reached after the restore either");
      if (clock.elapsed() >= until) return;
      await clock.sleep(PROMPT_EVERY_MS, this.#ending.signal);
    }
  }

  /** Whether the control plane says that it was not there itself all the while; that is believed as often as a change is tried. */
  async #wasAbsent({ last: { silentMs }, attempts }: Withheld): Promise<boolean> {
    if (silentMs === undefined || attempts >= MAX_ATTEMPTS) return false;
    const { prover, clock, log } = this.#options;
    const servingMs = await prover.servingMs(this.#ending.signal);
    if (servingMs === undefined || servingMs >= silentMs + (clock.elapsed() - this.#notedAt)) return false;
    log.info({ servingMs }, "the control plane began anew while the change was tried");
    return true;
  }

  /** Who is not reached over what was restored: the control plane, or whichever gateways alone were missed. */
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
    this.#takeBack();
    const { refuse, log, onRelease } = this.#options;
    const isGone = await refuse(held).catch((error: unknown) => {
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

  /** A session that never ended does not open. */
  #reconsiderLater(): void {
    this.#takeBack();
    this.#takeBack = this.#options.clock.after(RECONSIDER_MS, () => {
      this.#reconsiderLater();
      this.#isToBeJudged = false;
      if (this.#options.prover.before().session) this.sessionOpened();
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
