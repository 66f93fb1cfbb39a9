import type { DatabaseSync } from "node:sqlite";
import type { Session, SessionStatus } from "./session/session.ts";

/** Liveness of the agent, checked from inside. */
export interface Pulse {
  /** Names the part that hangs or is long overdue; undefined while there is none. @throws what the store does. */
  check(): string | undefined;
  /** Returns the state of the agent in one line. */
  line(): string;
}

/** Timers are late by milliseconds; one that is this late was lost. */
const OVERDUE_MS = 30_000;

export function agentPulse(parts: {
  readonly sql: Pick<DatabaseSync, "prepare">;
  readonly session: () => Pick<Session, "overdueMs" | "status"> | undefined;
}): Pulse {
  return {
    check() {
      parts.sql.prepare("SELECT count(*) FROM sqlite_schema").get();
      const overdueMs = parts.session()?.overdueMs ?? 0;
      return overdueMs > OVERDUE_MS ? `the session is ${Math.round(overdueMs / 1000)} s overdue` : undefined;
    },
    line: () => lineOf(parts.session()?.status()),
  };
}

function lineOf(status: SessionStatus | undefined): string {
  if (status === undefined) return "Not registered";
  const { state, reason } = status;
  if (state === "online") return "Connected to the control plane";
  return `Serving; no session with the control plane${reason === undefined ? "" : `: ${reason.code}`}`;
}
