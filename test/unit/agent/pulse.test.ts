import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { agentPulse } from "../../../src/agent/pulse.ts";
import type { SessionStatus } from "../../../src/agent/session/session.ts";

const status = (more: Partial<SessionStatus>): SessionStatus => ({ state: "waiting", since: 0, attempt: 1, ...more });

function pulseOf(overdueMs: number, standing = status({})) {
  const sql = new DatabaseSync(":memory:");
  return { sql, pulse: agentPulse({ sql, session: () => ({ overdueMs, status: () => standing }) }) };
}

test("continues while the session is in back-off, and before there is one", () => {
  expect(pulseOf(0).pulse.check()).toBeUndefined();
  expect(pulseOf(29_000).pulse.check()).toBeUndefined();
  expect(agentPulse({ sql: new DatabaseSync(":memory:"), session: () => undefined }).check()).toBeUndefined();
});

test("stops while the session is long overdue", () => {
  expect(pulseOf(31_000).pulse.check()).toBe("the session is 31 s overdue");
});

test("stops when the store does not respond", () => {
  const { sql, pulse } = pulseOf(0);
  sql.close();
  expect(() => pulse.check()).toThrow("database is not open");
});

test("reports its state in one line", () => {
  expect(agentPulse({ sql: new DatabaseSync(":memory:"), session: () => undefined }).line()).toBe("Not registered");
  expect(pulseOf(0, status({ state: "online" })).pulse.line()).toBe("Connected to the control plane");
  const reason = { code: "refused", message: "connect ECONNREFUSED" };
  expect(pulseOf(0, status({ reason })).pulse.line()).toBe("Serving; no session with the control plane: refused");
  expect(pulseOf(0, status({ state: "connecting" })).pulse.line()).toBe("Serving; no session with the control plane");
});
