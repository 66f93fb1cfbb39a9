import { describe, expect, test } from "vitest";
import { judge } from "../../../../src/agent/status/judgement.ts";
import { identityReasons } from "../../../../src/agent/status/status.ts";
import type { Status } from "../../../../src/protocol/local/answers.ts";
import type { Reason } from "../../../../src/protocol/documents/reconcile.ts";
import { someStatus } from "../../../support/fake-local-provider.ts";

const NOW = 1_000_000;
const REASON: Reason = {
  section: "connectors",
  item: "c1",
  code: "port-taken",
  message: "80 is taken",
  since: 1,
  lastAttempt: 2,
};

function judged(change: Partial<Status> = {}, reasons: readonly Reason[] = []) {
  const status = someStatus();
  return judge(
    {
      now: NOW,
      status: { ...status, ...change },
      clockOffsetSeconds: 0,
      diskUsedRatio: 0.1,
      isStatePersistent: true,
      dns: true,
      repository: undefined,
      ssh: true,
      refusedSignatures: 0,
    },
    reasons,
    () => 7,
  );
}

describe("health and why", () => {
  test("agree that there is no issue", () => {
    const { health, why } = judged();
    expect([health.verdict, why.reasons]).toEqual(["ok", []]);
  });

  test("agree on unreachable gateways", () => {
    const { engines } = someStatus();
    const dataPlane = { state: "down", paths: 2, up: 0 } as const;
    const { health, why } = judged({ engines: { ...engines, dataPlane } });
    expect(health.verdict).not.toBe("ok");
    expect(why.reasons).toMatchObject([{ section: "health", item: "data-plane", since: 7, lastAttempt: NOW }]);
  });

  test("agree on a fault, such as an unavailable document", () => {
    const faults = [{ code: "document-unavailable", message: "the node document cannot be had: HTTP 500", since: 3 }];
    const { health, why } = judged({ faults });
    expect(health.verdict).toBe("degraded");
    expect(why.reasons).toMatchObject([{ section: "health", item: "document-unavailable", since: 3 }]);
  });

  test("agree on a reason without a check, once each", () => {
    const { health, why } = judged({}, [REASON, { ...REASON, item: "c2" }]);
    expect(health.verdict).toBe("degraded");
    expect(health.items.at(-1)).toMatchObject({ name: "config", status: "warn", since: 1 });
    expect(health.items.at(-1)?.message).toBe("c1: 80 is taken; and 1 more: see 'holdfast why'");
    expect(why.reasons).toHaveLength(2);
  });

  test("agree on a section that waits, with its reason at the check of the documents", () => {
    const sections = { exec: { state: "pending", version: 1, issues: [], steps: 0 } } satisfies Status["sections"];
    const waits = { ...REASON, section: "exec", item: undefined, message: "exec: the engine does not answer" };
    const { health, why } = judged({ sections }, [waits]);
    expect(health.verdict).toBe("degraded");
    expect(health.items.filter(({ name }) => ["documents", "config"].includes(name))).toMatchObject([
      { name: "documents", status: "warn", message: "exec pending; exec: the engine does not answer" },
    ]);
    expect(why.reasons).toEqual([waits]);
  });

  test("agree on lost keys, by one code", () => {
    const session = {
      state: "stopped",
      since: 9,
      attempt: 0,
      reason: { code: "identity-lost", message: "gone" },
    } as const;
    const status = { ...someStatus(), session, faults: [{ code: "identity-lost", message: "gone", since: 9 }] };
    const { health, why } = judged(status, identityReasons(status));
    expect(why.reasons.map(({ section, code, since }) => ({ section, code, since }))).toEqual([
      { section: "node", code: "identity-lost", since: 9 },
    ]);
    expect(why.reasons[0]?.message).toContain("run 'holdfast reset', then with a new license");
    expect(JSON.stringify(health).match(/identity-lost/g)).toHaveLength(1);
    expect(health.items[0]).toMatchObject({
      name: "control-plane",
      status: "fail",
      message: expect.stringMatching(/^identity-lost: /) as unknown,
      fix: expect.stringContaining("run 'holdfast reset'") as unknown,
    });
  });

  test("agree on a reason without a check, also while a check fails", () => {
    const reason = { ...REASON, section: "alert", item: undefined, message: "it is not applied" };
    const { health, why } = judged({ session: { state: "waiting", since: 1, attempt: 1 } }, [reason]);
    expect(health.items.find(({ name }) => name === "config")?.message).toBe("alert: it is not applied");
    expect(why.reasons.map(({ section, item }) => item ?? section)).toEqual(["alert", "control-plane"]);
    expect(health.verdict).toBe("degraded");
  });

  test("agree on a session that is lost repeatedly, also while online", () => {
    const lost = { since: 5, message: "lost 4 times in the last ten minutes; the last cause: silence" };
    for (const state of ["online", "waiting"] as const) {
      const { health, why } = judged({ session: { state, since: 9, attempt: 5, lost } });
      expect(health.verdict).toBe("degraded");
      expect(health.items[0]?.message).toContain(lost.message);
      expect(why.reasons).toMatchObject([
        { item: "control-plane", message: expect.stringContaining(lost.message) as unknown },
      ]);
    }
  });

  test("fail the node for a failing check also while it has no session", () => {
    const faults = [{ code: "storage-unavailable", message: "the disk refuses writes: ENOSPC", since: 3 }];
    for (const state of ["online", "waiting"] as const) {
      expect(judged({ faults, session: { state, since: 1, attempt: 1 } }).health.verdict).toBe("failed");
    }
  });

  test("agree that a notice is no issue", () => {
    const { health, why } = judged({}, [{ ...REASON, notice: true }]);
    expect([health.verdict, why.reasons.length]).toEqual(["ok", 1]);
  });
});
