import { randomUUIDv7 } from "node:crypto";
import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { OrgAuditStore } from "./org-audit-store.ts";

const HOUR_MS = 3_600_000;
/** Limit of the uses that are told apart within an hour; further ones are not recorded. */
const MAX_USES = 10_000;

export interface AuthenticationsDeps {
  readonly orgAudits: Pick<OrgAuditStore, "add">;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Audits authentications: the first of each user, outcome and address within an hour. */
export class Authentications {
  readonly #deps: AuthenticationsDeps;
  readonly #seen = new Set<string>();
  #hour = 0;

  constructor(deps: AuthenticationsDeps) {
    this.#deps = deps;
  }

  /** Notes an authentication of a user, or a failed one of nobody; the store's failures are logged. */
  async note(user: string | undefined, ip: string): Promise<void> {
    const { orgAudits, clock, log } = this.#deps;
    const now = clock.now();
    const hour = Math.floor(now / HOUR_MS);
    if (hour !== this.#hour) this.#seen.clear();
    this.#hour = hour;
    const use = JSON.stringify([user, ip]);
    if (this.#seen.has(use) || this.#seen.size >= MAX_USES) return;
    this.#seen.add(use);
    const message = user === undefined ? "API access refused: invalid credentials" : `API access of ${user}`;
    const auditType = user === undefined ? "failure" : "success";
    const audit = { uid: randomUUIDv7(), kind: "user", auditType, itemType: "API", itemId: "", ip, message } as const;
    try {
      await orgAudits.add({ ...audit, userName: user ?? "", timestamp: Math.floor(now / 1000) });
    } catch (error) {
      this.#seen.delete(use);
      log.warn({ err: toError(error) }, "cannot audit an authentication");
    }
  }
}
