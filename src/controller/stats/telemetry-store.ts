import { z } from "zod";
import type { MetricSample, StreamName } from "../../protocol/documents/telemetry.ts";
import { METRICS_SECONDS } from "./telemetry.ts";
import { json } from "../store/columns.ts";
import type { Executor } from "../store/database.ts";
import { statement } from "../store/statement.ts";

/** Stored positions of each node's telemetry streams, and its metrics (90 days). */
export interface TelemetryStore {
  /** Number of the last stored record of a stream; 0 if none. */
  last(node: string, stream: StreamName): Promise<number>;
  setLast(node: string, stream: StreamName, last: number): Promise<void>;
  addMetric(node: string, sample: MetricSample): Promise<void>;
  /** Oldest first; both ends inclusive, Unix seconds. At most 90 days of minutes. */
  metrics(node: string, from: number, to: number): Promise<readonly MetricSample[]>;
  prune(nowSeconds: number): Promise<void>;
}

/** Minutes in 90 days. */
const MOST_METRICS = 129_600;

const Sample = z.record(z.string(), z.number());

type TelemetryTables = {
  readonly telemetry_acks: { readonly node: string; readonly stream: string; readonly last: number };
  readonly metrics: { readonly node: string; readonly t: number; readonly m: string };
};

const LAST = statement<{ readonly node: string; readonly stream: string }>()((db, value) =>
  db
    .$extendTables<TelemetryTables>()
    .selectFrom("telemetry_acks")
    .select("last")
    .where("node", "=", value("node"))
    .where("stream", "=", value("stream")),
);
const SET_LAST = statement<TelemetryTables["telemetry_acks"]>()((db, value) =>
  db
    .$extendTables<TelemetryTables>()
    .insertInto("telemetry_acks")
    .values({ node: value("node"), stream: value("stream"), last: value("last") })
    .onConflict((conflict) => conflict.columns(["node", "stream"]).doUpdateSet({ last: value("last") })),
);
const ADD_METRIC = statement<TelemetryTables["metrics"]>()((db, value) =>
  db
    .$extendTables<TelemetryTables>()
    .insertInto("metrics")
    .values({ node: value("node"), t: value("t"), m: value("m") })
    .onConflict((conflict) => conflict.columns(["node", "t"]).doUpdateSet({ m: value("m") })),
);

export function telemetryStore(executor: Executor): TelemetryStore {
  const db = executor.$extendTables<TelemetryTables>();
  return {
    last: async (node, stream) => (await LAST(executor, { node, stream })).rows[0]?.last ?? 0,
    async setLast(node, stream, last) {
      await SET_LAST(executor, { node, stream, last });
    },
    async addMetric(node, { t, m }) {
      await ADD_METRIC(executor, { node, t, m: JSON.stringify(m) });
    },
    async metrics(node, from, to) {
      const rows = await db
        .selectFrom("metrics")
        .select(["t", "m"])
        .where("node", "=", node)
        .where("t", ">=", Math.ceil(from))
        .where("t", "<=", Math.floor(to))
        .orderBy("t")
        .limit(MOST_METRICS)
        .execute();
      return rows.map((row) => ({ t: row.t, m: json(row, "m", Sample) }));
    },
    async prune(nowSeconds) {
      await db
        .deleteFrom("metrics")
        .where("t", "<", Math.floor(nowSeconds - METRICS_SECONDS))
        .execute();
    },
  };
}
