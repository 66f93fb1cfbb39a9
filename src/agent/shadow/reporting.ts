import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { ShadowMap } from "../../protocol/values/shadow.ts";
import type { Connection } from "../session/attempt.ts";
import {
  initialReporter,
  nextReport,
  outOfSync,
  reportAcknowledged,
  reportLost,
  sessionBegan,
  type Acknowledged,
  type ReporterState,
  type ShadowReport,
} from "./reporter.ts";
import { ANSWER_MS, withinTime } from "../../lib/async/within-time.ts";

export interface ReportingOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly acknowledged: Acknowledged | undefined;
  readonly facts: () => ShadowMap;
  /** Saves the acknowledged report for the next start; called when a session ends, since an idle node must not write. */
  readonly keep: (acknowledged: Acknowledged) => void;
}

const CONGESTED_RETRY_MS = 1000;

/** Reports changes of the shadow facts, one report in flight. */
export class ShadowReporting {
  readonly #options: ReportingOptions;
  #state: ReporterState;
  #kept: Acknowledged | undefined;
  #connection: Connection | undefined;
  #cancelTimer = (): void => undefined;

  constructor(options: ReportingOptions) {
    this.#options = options;
    this.#state = initialReporter(options.acknowledged);
    this.#kept = options.acknowledged;
  }

  /** The version that the control plane has acknowledged. */
  get version(): number {
    return this.#state.acknowledged?.version ?? 0;
  }

  online(connection: Connection): void {
    this.#connection = connection;
    this.#state = sessionBegan(this.#state, connection.reportedVersion);
    this.evaluate();
  }

  offline(): void {
    this.#connection = undefined;
    this.#cancelTimer();
    this.#state = reportLost(this.#state);
    // After a crash the versions differ, and everything is reported again.
    this.#keep();
  }

  #keep(): void {
    const { acknowledged } = this.#state;
    if (acknowledged !== undefined && acknowledged !== this.#kept) this.#options.keep(acknowledged);
    this.#kept = acknowledged;
  }

  /** Evaluates the facts, and reports what has changed. */
  evaluate(): void {
    const connection = this.#connection;
    if (connection === undefined) return;
    this.#cancelTimer();
    const { clock, facts } = this.#options;
    if (connection.isCongested()) return this.#evaluateAfter(CONGESTED_RETRY_MS);
    const next = nextReport(this.#state, facts(), clock.elapsed());
    this.#state = next.state;
    if (next.report !== undefined) void this.#send(connection, next.report);
    else if (next.waitMs !== undefined) this.#evaluateAfter(next.waitMs);
  }

  #evaluateAfter(ms: number): void {
    this.#cancelTimer = this.#options.clock.after(ms, () => this.evaluate());
  }

  async #send(connection: Connection, report: ShadowReport): Promise<void> {
    try {
      const { version } = await connection.rpc.request(
        "shadow.report",
        report,
        withinTime(connection.signal, ANSWER_MS),
      );
      if (this.#connection !== connection) return;
      this.#state = reportAcknowledged(this.#state, version);
      // A first or lost record is saved at once; everything else when the session ends.
      if (this.#kept === undefined) this.#keep();
    } catch (thrown) {
      if (this.#connection !== connection) return;
      const error = toError(thrown);
      const isOutOfSync = "code" in error && error.code === "out-of-sync";
      this.#state = isOutOfSync ? outOfSync(this.#state) : reportLost(this.#state);
      this.#options.log.info({ reason: error.message, isOutOfSync }, "shadow report was not taken");
    }
    this.evaluate();
  }
}
