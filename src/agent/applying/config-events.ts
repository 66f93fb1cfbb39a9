import type { Clock } from "../../host/clock.ts";
import { DocumentName } from "../../protocol/documents/claims.ts";
import type { Drift, Standing } from "../reconcile/section-status.ts";
import { whyOf } from "../reconcile/section-status.ts";
import type { Desired } from "../shadow/desired.ts";
import type { EventLog } from "../telemetry/events.ts";

export interface ConfigEventsOptions {
  readonly clock: Clock;
  readonly events: Pick<EventLog, "raise" | "clear" | "notice">;
}

/** The last report of a section's drift. */
export interface ReportedDrift {
  readonly count: number;
  /** Monotonic milliseconds. */
  readonly at: number;
  readonly what: string;
}

const SAME_DRIFT_MS = 3_600_000;
const OTHER_DRIFT_MS = 300_000;
const MAX_NAMED = 10;

/** Limits reports of drift: the same at most once an hour, another at most every five minutes; counts those between. Pure. */
function isDriftNews(reported: ReportedDrift | undefined, { count, what }: Drift, now: number): boolean {
  if (count <= (reported?.count ?? 0)) return false;
  if (reported === undefined) return true;
  return now - reported.at >= (reported.what === what.join(", ") ? SAME_DRIFT_MS : OTHER_DRIFT_MS);
}

/** Reports the results of the configuration as events. It compares states, so it may be called at any time. */
export class ConfigEvents {
  readonly #options: ConfigEventsOptions;
  readonly #reported = new Map<string, ReportedDrift>();

  constructor(options: ConfigEventsOptions) {
    this.#options = options;
  }

  evaluate(desired: Desired, standings: readonly Standing[]): void {
    for (const name of DocumentName.options) this.#rollback(name, desired[name]);
    for (const standing of standings) {
      this.#rejected(standing);
      this.#failed(standing);
      this.#drift(standing);
    }
  }

  #rollback(name: DocumentName, held: Desired[DocumentName]): void {
    const about = { eventType: "Configuration Rollback", object: name };
    const { events } = this.#options;
    if (held?.refused === undefined) {
      events.clear({ ...about, message: `A newer version of the ${name} document is applied` });
      return;
    }
    const { version, refused } = held;
    const message = `The ${name} document was rolled back from version ${refused.version} to ${version}`;
    events.raise({ ...about, level: "WARNING", message, details: { inForce: version, refused: refused.version } });
  }

  #rejected({ section, issues, rejected, version }: Standing): void {
    const about = { eventType: "Invalid Configuration", object: `config.${section}` };
    const { events } = this.#options;
    if (rejected === 0) {
      events.clear({ ...about, message: `Everything in ${section} is valid` });
      return;
    }
    const named = issues.slice(0, Math.min(rejected, MAX_NAMED)).map(({ message }) => message.slice(0, 256));
    const message = `${rejected} of ${section} cannot be used and ignored: ${named[0] ?? ""}`;
    const details = { section, rejected, issues: named, version };
    events.raise({ ...about, level: "ERROR", message, details });
  }

  /** One failure may be momentary. */
  #failed(standing: Standing): void {
    const { section, outcome, failures, version } = standing;
    const about = { eventType: "Configuration Update Failure", object: `config.${section}` };
    const { events } = this.#options;
    // If no item is usable, nothing was applied either.
    if (outcome.state === "rejected") return;
    if (outcome.state !== "failed" && outcome.state !== "diverged") {
      events.clear({ ...about, message: `The configuration of ${section} is applied` });
    } else if (failures >= 2) {
      const [reason] = whyOf([standing]);
      const message = `The configuration of ${section} could not be applied: ${reason?.message ?? outcome.state}`;
      const details = { section, state: outcome.state, code: reason?.code ?? outcome.state, version };
      events.raise({ ...about, level: "INFO", message, details });
    }
  }

  #drift({ section, drift }: Standing): void {
    const now = this.#options.clock.elapsed();
    const reported = this.#reported.get(section);
    if (!isDriftNews(reported, drift, now)) return;
    const what = drift.what.join(", ");
    this.#reported.set(section, { count: drift.count, at: now, what });
    this.#options.events.notice({
      eventType: "Configuration Drift",
      object: `config.${section}`,
      level: "INFO",
      message: `Something else changed ${section}, and it was restored: ${what}`,
      details: { section, what: drift.what, times: drift.count - (reported?.count ?? 0), total: drift.count },
    });
  }
}
