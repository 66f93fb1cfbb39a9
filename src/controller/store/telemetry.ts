import type { DatabaseSync } from "node:sqlite";
import { z } from "zod";
import type { MetricSample, StreamName } from "../../protocol/telemetry.ts";
import { JsonObject } from "../../protocol/values.ts";
import { METRICS_SECONDS } from "../model/telemetry.ts";
import { json, number } from "./rows.ts";
import { trimmer } from "./trimmer.ts";

/** How far each node's streams are stored, its metrics (90 days), and its gateway details (30 days). */
export interface TelemetryStore {
  /** Number of the newest record of a stream that is stored; 0 for none. */
  last(node: string, stream: StreamName): number;
  setLast(node: string, stream: StreamName, last: number): void;
  addMetric(node: string, sample: MetricSample): void;
  /** Oldest first; both ends inclusive, Unix seconds. At most 90 days of minutes. */
  metrics(node: string, from: number, to: number): readonly MetricSample[];
  addGatewayDetails(node: string, record: JsonObject, atSeconds: number): void;
  gatewayDetails(node: string, from: number, to: number): readonly JsonObject[];
  /** Drops the oldest gateway details of one node beyond its share. */
  trim(node: string): void;
  prune(nowSeconds: number): void;
}

const DETAILS_SECONDS = 30 * 24 * 3600;
const DETAILS_ROWS = 1_000_000;
const DETAILS_ROWS_OF_NODE = 100_000;
const Sample = z.record(z.string(), z.number());

export function telemetryStore(sql: DatabaseSync): TelemetryStore {
  const last = sql.prepare("SELECT last FROM telemetry_acks WHERE node = ? AND stream = ?");
  const setLast = sql.prepare(
    "INSERT INTO telemetry_acks VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET last = excluded.last",
  );
  const addMetric = sql.prepare("INSERT INTO metrics VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET m = excluded.m");
  const metrics = sql.prepare("SELECT t, m FROM metrics WHERE node = ? AND t >= ? AND t <= ? ORDER BY t LIMIT 129600");
  const addDetails = sql.prepare("INSERT INTO gateway_details (node, received_at, record) VALUES (?, ?, ?)");
  const details = sql.prepare(
    "SELECT record FROM gateway_details WHERE node = ? AND received_at >= ? AND received_at <= ? ORDER BY seq LIMIT 10000",
  );
  const pruneMetrics = sql.prepare("DELETE FROM metrics WHERE t < ?");
  const pruneDetails = sql.prepare("DELETE FROM gateway_details WHERE received_at < ?");
  const pruneMany = sql.prepare("DELETE FROM gateway_details WHERE seq <= (SELECT max(seq) FROM gateway_details) - ?");
  const trim = trimmer(sql, "gateway_details", "node", DETAILS_ROWS_OF_NODE);
  return {
    last: (node, stream) => Number(last.get(node, stream)?.["last"] ?? 0),
    setLast: (node, stream, value) => void setLast.run(node, stream, value),
    addMetric: (node, { t, m }) => void addMetric.run(node, t, JSON.stringify(m)),
    metrics: (node, from, to) =>
      metrics.all(node, from, to).map((row) => ({ t: number(row, "t"), m: json(row, "m", Sample) })),
    addGatewayDetails: (node, record, at) => void addDetails.run(node, Math.floor(at), JSON.stringify(record)),
    gatewayDetails: (node, from, to) => details.all(node, from, to).map((row) => json(row, "record", JsonObject)),
    trim,
    prune(nowSeconds) {
      pruneMetrics.run(nowSeconds - METRICS_SECONDS);
      pruneDetails.run(nowSeconds - DETAILS_SECONDS);
      pruneMany.run(DETAILS_ROWS);
    },
  };
}
