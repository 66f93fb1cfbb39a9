import { randomUUIDv7 } from "node:crypto";
import type { Logger } from "pino";
import type { Clock } from "../../host/clock.ts";
import { Background } from "../../lib/async/background.ts";
import type { Source } from "../http/sources.ts";
import { whileUnavailable } from "../store/transact.ts";
import type { OrgAuditStore } from "./org-audit-store.ts";

export interface AuthenticationsDeps {
  readonly orgAudits: Pick<OrgAuditStore, "add">;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Time in which authentications of one user from one address, or failures of one source, count as one, in milliseconds. */
const HOUR_MS = 3_600_000;
/** Limit of recorded failures in an hour. Anybody can cause them: kept for 30 days, they displace no success. */
const MAX_FAILURES = 100;
const MAX_REMEMBERED = 10_000;
const MAX_STORING = 256;

/** Audits authentications within limits: the first of each user and address within an hour, and the first failure of each source. */
export class Authentications {
  readonly #deps: AuthenticationsDeps;
  readonly #storing: Background;
  /** Monotonic time of the latest audit by user and address, oldest first. */
  readonly #successes = new Map<string, number>();
  readonly #failures = new Set<string>();
  #failuresSince = -Infinity;

  constructor(deps: AuthenticationsDeps) {
    this.#deps = deps;
    const onFailure = (err: Error): void => deps.log.warn({ err }, "cannot audit an authentication");
    this.#storing = new Background({ limit: MAX_STORING, onFailure, repeat: whileUnavailable(deps.clock) });
  }

  succeeded(user: string, { address }: Source): void {
    const now = this.#deps.clock.elapsed();
    const key = JSON.stringify([user, address]);
    const at = this.#successes.get(key);
    if (at !== undefined && now - at < HOUR_MS) return;
    this.#successes.delete(key);
    const [oldest] = this.#successes.keys();
    if (oldest !== undefined && this.#successes.size >= MAX_REMEMBERED) this.#successes.delete(oldest);
    this.#successes.set(key, now);
    this.#store(user, address, "success", `API access of ${user}`);
  }

  failed({ address, prefix = address }: Source): void {
    const now = this.#deps.clock.elapsed();
    if (now - this.#failuresSince >= HOUR_MS) {
      this.#failuresSince = now;
      this.#failures.clear();
    }
    if (this.#failures.has(prefix) || this.#failures.size >= MAX_FAILURES) return;
    this.#failures.add(prefix);
    this.#store("", address, "failure", "API access refused: invalid credentials");
  }

  /** Waits for the audits that are being stored. */
  close(): Promise<void> {
    return this.#storing.settled();
  }

  #store(userName: string, ip: string, auditType: "success" | "failure", message: string): void {
    const { orgAudits, clock } = this.#deps;
    const timestamp = Math.floor(clock.now() / 1000);
    const audit = { uid: randomUUIDv7(), kind: "user", auditType, itemType: "API", itemId: "", ip, message } as const;
    this.#storing.run(() => orgAudits.add({ ...audit, userName, timestamp }));
  }
}
