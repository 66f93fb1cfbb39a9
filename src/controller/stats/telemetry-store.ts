import type { DatabaseSync } from "node:sqlite";
import { z } from "zod";
import type { MetricSample, StreamName } from "../../protocol/documents/telemetry.ts";
import { METRICS_SECONDS } from "./telemetry.ts";
import { json, number } from "../store/rows.ts";

/** Stored positions of each node's telemetry streams, and its metrics (90 days). */
export interface TelemetryStore {
  /** Number of the last stored record of a stream; 0 if none. */
  last(node: string, stream: StreamName): number;
  setLast(node: string, stream: StreamName, last: number): void;
  addMetric(node: string, sample: MetricSample): void;
  /** Oldest first; both ends inclusive, Unix seconds. At most 90 days of minutes. */
  metrics(node: string, from: number, to: number): readonly MetricSample[];
  prune(nowSeconds: number): void;
}

const Sample = z.record(z.string(), z.number());

export function telemetryStore(sql: DatabaseSync): TelemetryStore {
  const last = sql.prepare("SELECT last FROM telemetry_acks WHERE node = ? AND stream = ?");
  const setLast = sql.prepare(
    "INSERT INTO telemetry_acks VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET last = excluded.last",
  );
  const addMetric = sql.prepare("INSERT INTO metrics VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET m = excluded.m");
  const metrics = sql.prepare("SELECT t, m FROM metrics WHERE node = ? AND t >= ? AND t <= ? ORDER BY t LIMIT 129600");
  const pruneMetrics = sql.prepare("DELETE FROM metrics WHERE t < ?");
  return {
    last: (node, stream) => Number(last.get(node, stream)?.["last"] ?? 0),
    setLast: (node, stream, value) => void setLast.run(node, stream, value),
    addMetric: (node, { t, m }) => void addMetric.run(node, t, JSON.stringify(m)),
    metrics: (node, from, to) =>
      metrics.all(node, from, to).map((row) => ({ t: number(row, "t"), m: json(row, "m", Sample) })),
    prune(nowSeconds) {
      pruneMetrics.run(nowSeconds - METRICS_SECONDS);
    },
  };
}
