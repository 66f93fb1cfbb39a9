import { randomBytes } from "node:crypto";
import type { Clock } from "../../host/clock.ts";
import type { DocumentName } from "../../protocol/documents/claims.ts";

/** What a ticket for a document lets its bearer fetch. */
export interface DocumentTicket {
  readonly uid: string;
  readonly sid: string;
  readonly name: "keys" | DocumentName;
  readonly have: number;
}

export const TICKET_LIFETIME_MS = 60_000;
const MAX_TICKETS = 50_000;

/** One-time tickets, each valid for a minute; beyond a bound the oldest go first. */
export class Tickets<Ticket = DocumentTicket> {
  readonly #clock: Clock;
  /** In the order of issue, so the first ones expire first. */
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

  /** What the ticket is for, once; undefined for one that is unknown, used or too old. */
  redeem(id: string): Ticket | undefined {
    const found = this.#open.get(id);
    this.#open.delete(id);
    return found !== undefined && found.expiresAt > this.#clock.elapsed() ? found.ticket : undefined;
  }
}
