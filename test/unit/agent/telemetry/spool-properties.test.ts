import fc from "fast-check";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { Spool, spoolMigration, streamBounds } from "../../../../src/agent/telemetry/spool.ts";
import { runs } from "../../../support/sample.ts";

const { maxRecords } = streamBounds.metrics;

const steps = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: fc.record({ kind: fc.constant("append" as const), count: fc.nat({ max: 900 }) }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant("flush" as const), most: fc.nat({ max: 1500 }) }) },
    { weight: 3, arbitrary: fc.record({ kind: fc.constant("acknowledge" as const), part: fc.nat({ max: 500 }) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("send" as const) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("refuse" as const), isRefusing: fc.boolean() }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("kill" as const) }) },
  ),
  { maxLength: 40 },
);

test("sends records in order under unique numbers, and loses some only at a kill or the limit", () => {
  fc.assert(
    fc.property(steps, (plan) => {
      const sql = new DatabaseSync(":memory:");
      sql.exec(spoolMigration);
      const open = () => new Spool(sql, () => undefined);
      let spool = open();
      // Records in memory, oldest first; and how many of the oldest survive a kill.
      let waiting: number[] = [];
      let dropped = 0;
      let next = 0;
      let inFlight: ReturnType<Spool["batch"]>;
      const idBySeq = new Map<number, unknown>();
      for (const step of plan) {
        switch (step.kind) {
          case "append": {
            const ids = Array.from({ length: step.count }, (_, i) => next + i);
            next += step.count;
            spool.appendAll(
              "metrics",
              ids.map((id) => ({ id })),
            );
            waiting.push(...ids);
            dropped += Math.max(0, waiting.length - maxRecords);
            waiting = waiting.slice(-maxRecords);
            break;
          }
          case "flush":
            spool.flush(step.most);
            break;
          case "send":
            inFlight = spool.batch("metrics");
            break;
          case "acknowledge": {
            const batch = inFlight ?? spool.batch("metrics");
            inFlight = undefined;
            if (batch === undefined) break;
            const last = Math.min(batch.first + step.part, batch.first + batch.records.length - 1);
            const newest = Number(batch.records[last - batch.first]?.["id"]);
            spool.acknowledge(batch, last);
            waiting = waiting.filter((id) => id > newest);
            break;
          }
          case "refuse":
            sql.exec(`PRAGMA query_only=${step.isRefusing ? "ON" : "OFF"}`);
            break;
          case "kill": {
            inFlight = undefined;
            const stored = sql.prepare("SELECT body FROM spool_record ORDER BY seq").all();
            const ids = stored.map(({ body }) => (JSON.parse(String(body)) as { id: number }).id);
            sql.exec("PRAGMA query_only=OFF");
            spool = open();
            dropped = spool.status().metrics.dropped;
            // A disk that lagged behind may bring back acknowledged or dropped records, which the control plane ignores.
            expect(ids.length).toBeLessThanOrEqual(maxRecords);
            expect([...ids].sort((a, b) => a - b)).toEqual(ids);
            const kept = waiting.filter((id) => ids.includes(id));
            expect(kept).toEqual(waiting.slice(0, kept.length));
            waiting = ids;
            break;
          }
        }
        expect(spool.status().metrics).toEqual({ queued: waiting.length, dropped });
        const batch = spool.batch("metrics");
        expect(batch?.records.map(({ id }) => id) ?? []).toEqual(waiting.slice(0, batch?.records.length ?? 0));
        for (const [i, { id }] of (batch?.records ?? []).entries()) {
          const seq = (batch?.first ?? 0) + i;
          expect(idBySeq.get(seq) ?? id).toBe(id);
          idBySeq.set(seq, id);
        }
      }
    }),
    { numRuns: runs(150) },
  );
});
