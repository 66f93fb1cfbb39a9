/** The end of a request: an answer (failures included), a timeout, or an answer that does not fit its schema. */
export type Outcome = "answered" | "unanswered" | "nonsense";

/** Requests of one method that the control plane does not answer correctly; times in monotonic milliseconds. */
export interface Unanswered {
  readonly method: string;
  readonly how: Exclude<Outcome, "answered">;
  readonly since: number;
  readonly count: number;
}

/** Retention of a method's failure if the method is not called again. */
const FORGET_MS = 600_000;
/** A session in which nothing is answered is cut after so many requests and this time. */
const CUT = { requests: 3, afterMs: 60_000 };

/** Watches whether requests are answered, across sessions. */
export class AnswerWatch {
  readonly #failing = new Map<string, Unanswered & { readonly lastAt: number }>();
  /** Requests of this session that failed since the last answer. */
  #inRow: { since: number; count: number } | undefined;

  /** Resets the count of the session. */
  begin(): void {
    this.#inRow = undefined;
  }

  /** Notes how a request ended, and reports whether the session must be cut. */
  note(method: string, outcome: Outcome, now: number): boolean {
    if (outcome === "answered") {
      this.#failing.delete(method);
      this.#inRow = undefined;
      return false;
    }
    const { since = now, count = 0 } = this.#failing.get(method) ?? {};
    this.#failing.set(method, { method, how: outcome, since, count: count + 1, lastAt: now });
    this.#inRow = { since: this.#inRow?.since ?? now, count: (this.#inRow?.count ?? 0) + 1 };
    return this.#inRow.count >= CUT.requests && now - this.#inRow.since >= CUT.afterMs;
  }

  /** The unanswered methods, the longest first. */
  failing(now: number): readonly Unanswered[] {
    for (const [method, { lastAt }] of this.#failing) if (now - lastAt > FORGET_MS) this.#failing.delete(method);
    return [...this.#failing.values()].sort((a, b) => a.since - b.since);
  }
}

/** Describes it for a person. */
export function unansweredText({ method, how, count }: Pick<Unanswered, "method" | "how" | "count">): string {
  const what = how === "unanswered" ? "does not answer" : "answers in a form that does not match its schema to";
  return `the control plane ${what} ${method} (${count} ${count === 1 ? "request" : "requests"})`;
}
