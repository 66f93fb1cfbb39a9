import { randomBytes } from "node:crypto";
import type { Clock } from "../../host/clock.ts";
import type { DocumentName } from "../../protocol/documents/claims.ts";

/** Document that a ticket's bearer may fetch. */
export interface DocumentTicket {
  readonly uid: string;
  readonly sid: string;
  readonly name: "keys" | DocumentName;
  readonly have: number;
}

export const TICKET_LIFETIME_MS = 60_000;
const MAX_TICKETS = 50_000;

/** One-time tickets, valid for one minute each; the oldest are dropped at the limit of 50,000. */
export class Tickets<Ticket = DocumentTicket> {
  readonly #clock: Clock;
  /** In order of issue, so the first expire first. */
  readonly #open = new Map<string, { readonly ticket: Ticket; readonly expiresAt: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  issue(ticket: Ticket): string {
    const now = this.#clock.elapsed();
    for (const [id, { expiresAt }] of this.#open) {
      if (expiresAt > now && this.#open.size < MAX_TICKETS) break;
      this.#open.delete(id);
    }
    const id = randomBytes(32).toString("base64url");
    this.#open.set(id, { ticket, expiresAt: now + TICKET_LIFETIME_MS });
    return id;
  }

  /** Consumes a ticket and returns its content; undefined if it is unknown, used or expired. */
  redeem(id: string): Ticket | undefined {
    const found = this.#open.get(id);
    this.#open.delete(id);
    return found !== undefined && found.expiresAt > this.#clock.elapsed() ? found.ticket : undefined;
  }
}
