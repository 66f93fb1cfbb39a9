import { AgentError } from "../../errors.ts";
import type { EventLog } from "../telemetry/events.ts";

const CODES: ReadonlySet<string> = new Set(["bad-signature", "replayed", "below-floor", "invalid-claims"]);

/** Counts and reports messages that claim to come from the control plane and fail verification. */
export class Forgeries {
  readonly #events: Pick<EventLog, "notice">;
  #count = 0;

  constructor(events: Pick<EventLog, "notice">) {
    this.#events = events;
  }

  get count(): number {
    return this.#count;
  }

  /** Counts and reports one, regardless of its code. */
  note(what: string, error: AgentError): void {
    this.#count += 1;
    this.#events.notice({
      eventType: "Signature Refused",
      object: error.code,
      level: "WARNING",
      message: `Refused ${what}: ${error.message}`.slice(0, 1024),
      details: { code: error.code, refusedSoFar: this.#count },
    });
  }

  /** Notes an error if its code says that verification failed. */
  judge(what: string, error: unknown): void {
    if (error instanceof AgentError && CODES.has(error.code)) this.note(what, error);
  }
}
