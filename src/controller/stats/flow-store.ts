import type { DatabaseSync, StatementSync } from "node:sqlite";
import { addressRange } from "../../lib/net/cidr.ts";
import { DEFUNCT_FLAGS, FlowRecord } from "../../protocol/documents/telemetry.ts";
import { JsonObject } from "../../protocol/values/values.ts";
import { FLOWS_SECONDS, MAX_FLOWS_FOUND, USAGE_SECONDS, usageBuckets, usageOf } from "./flows.ts";
import { maybeJson, maybeText, number, text, word, type Row } from "../store/rows.ts";
import { defined } from "../../lib/defined.ts";
import type { FlowFilter, FlowSearch, NodeFlow } from "./records.ts";

/** Flow records of all nodes, including deleted ones: 30 days and at most 500,000; and their sums per minute for 90 days. */
export interface FlowStore extends FlowSearch {
  /** Stores records of a node, and drops its oldest beyond its limit of 100,000. */
  add(nodeId: string, flows: readonly FlowRecord[]): void;
  prune(nowSeconds: number): void;
}

/** Limit of rows: a search may scan all of them and blocks everything else meanwhile. */
const ROWS = 500_000;
const ROWS_PER_NODE = 100_000;
/** Rows by which a node may exceed its limit before they are dropped in bulk; counting and dropping are slow. */
const SLACK = 5000;

const ADD = `
  INSERT INTO flows (node, source_node, dest_node, source_ip, dest_ip, source_key, dest_key, source_port, dest_port, source_bytes,
    dest_bytes, started_at, ended_at, protocol, tcp_flags, flags, activity, meta)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`;
const WHERE = `
  ended_at >= :from AND ended_at <= :to
  AND (:nodes IS NULL OR node IN (SELECT value FROM json_each(:nodes)))
  AND (:protocols IS NULL OR protocol IN (SELECT value FROM json_each(:protocols)))
  AND (:sourceLow IS NULL OR source_key BETWEEN :sourceLow AND :sourceHigh)
  AND (:destLow IS NULL OR dest_key BETWEEN :destLow AND :destHigh)
  AND (:sourcePort IS NULL OR source_port = :sourcePort)
  AND (:destPort IS NULL OR dest_port = :destPort)
  AND (:connector IS NULL OR meta ->> '$.connector' = :connector)
  AND (:flow IS NULL OR meta ->> '$.flow' = :flow)
  AND (:reasons IS NULL OR meta ->> '$.reason' IN (SELECT value FROM json_each(:reasons)))
  AND (:defunct IS NULL OR ((flags & ${DEFUNCT_FLAGS}) <> 0) = :defunct)`;
const Protocol = FlowRecord.shape.protocol;

/** `uidOf` maps node names to UIDs. */
export function flowStore(sql: DatabaseSync, uidOf: (name: string) => string | undefined): FlowStore {
  const add = sql.prepare(ADD);
  const addUsage = sql.prepare(
    `INSERT INTO flow_usage VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
     SET bytes = min(bytes + excluded.bytes, ${Number.MAX_SAFE_INTEGER}), count = count + excluded.count`,
  );
  const count = sql.prepare(
    `SELECT count(*) AS total FROM (SELECT 1 FROM flows WHERE ${WHERE} LIMIT ${MAX_FLOWS_FOUND})`,
  );
  const page = (order: "ASC" | "DESC"): StatementSync =>
    sql.prepare(
      `SELECT * FROM flows WHERE ${WHERE} ORDER BY ended_at ${order}, seq ${order} LIMIT :limit OFFSET :offset`,
    );
  const pages = { asc: page("ASC"), desc: page("DESC") };
  const usage = sql.prepare(
    `SELECT CAST((t - :from) / :size AS INTEGER) AS bucket, total(bytes) AS bytes, total(count) AS count FROM flow_usage
     WHERE t >= :from AND t < :to AND (:nodes IS NULL OR node IN (SELECT value FROM json_each(:nodes)))
     AND (source = '' OR (:nodes IS NOT NULL AND source NOT IN (SELECT value FROM json_each(:nodes)))) GROUP BY bucket`,
  );
  const ofNode = sql.prepare("SELECT count(*) AS rows FROM flows WHERE node = ?");
  const dropOfNode = sql.prepare(
    "DELETE FROM flows WHERE seq IN (SELECT seq FROM flows WHERE node = ? ORDER BY ended_at LIMIT ?)",
  );
  const pruneOld = sql.prepare("DELETE FROM flows WHERE ended_at < ?");
  const pruneMany = sql.prepare("DELETE FROM flows WHERE seq <= (SELECT max(seq) FROM flows) - ?");
  const pruneUsage = sql.prepare("DELETE FROM flow_usage WHERE t < ?");
  // Rows added since a node's rows were last counted.
  const uncounted = new Map<string, number>();

  function trim(node: string, added: number): void {
    const since = (uncounted.get(node) ?? SLACK) + added;
    uncounted.set(node, since);
    if (since < SLACK) return;
    uncounted.set(node, 0);
    const over = Number(ofNode.get(node)?.["rows"] ?? 0) - ROWS_PER_NODE;
    if (over > 0) dropOfNode.run(node, over);
  }

  return {
    add(node, flows) {
      for (const flow of flows) add.run(...valuesOf(node, flow));
      for (const { t, source, bytes, count: ended } of usageOf(flows, node, uidOf)) {
        addUsage.run(node, t, source, bytes, ended);
      }
      trim(node, flows.length);
    },
    find(filter) {
      const named = parametersOf(filter);
      const { offset, order } = filter;
      const limit = Math.max(0, Math.min(filter.limit, MAX_FLOWS_FOUND - offset));
      const items = pages[order].all({ ...named, limit, offset }).map(read);
      // The last page implies the total, so that a small result needs no second query.
      const isLast = items.length < limit && (items.length > 0 || offset === 0);
      const total = isLast ? offset + items.length : Number(count.get(named)?.["total"] ?? 0);
      return { total, items };
    },
    usage(range, nodeIds) {
      const { from, to, bucketSeconds: size } = range;
      const rows = usage.all({ from, to, size, nodes: list(nodeIds) });
      const counted = rows.map((row) => ({
        index: number(row, "bucket"),
        bytes: Math.min(number(row, "bytes"), Number.MAX_SAFE_INTEGER),
        count: number(row, "count"),
      }));
      return usageBuckets(range, counted);
    },
    prune(nowSeconds) {
      pruneOld.run(Math.floor((nowSeconds - FLOWS_SECONDS) * 1000));
      pruneMany.run(ROWS);
      pruneUsage.run(Math.floor(nowSeconds - USAGE_SECONDS));
    },
  };
}

function valuesOf(node: string, flow: FlowRecord) {
  const { sourceIP, destIP, meta } = flow;
  return [
    node,
    flow.sourceNode,
    flow.destNode,
    sourceIP,
    destIP,
    keyOf(sourceIP),
    keyOf(destIP),
    flow.sourcePort,
    flow.destPort,
    flow.sourceBytes,
    flow.destBytes,
    Date.parse(flow.startTime),
    Date.parse(flow.endTime),
    flow.protocol,
    flow.tcpFlags ?? null,
    Number(flow.flags),
    flow.activityID ?? null,
    meta === undefined || meta === null ? null : JSON.stringify(meta),
  ] as const;
}

/** Returns the sort key of an address; a zone is ignored, as it names a link. */
function keyOf(address: string): Uint8Array | null {
  return addressRange(address.replace(/%.*$/, ""))?.low ?? null;
}

function parametersOf(filter: FlowFilter) {
  const source = filter.source === undefined ? undefined : addressRange(filter.source);
  const dest = filter.dest === undefined ? undefined : addressRange(filter.dest);
  return {
    from: Math.floor(filter.from * 1000),
    to: Math.floor(filter.to * 1000),
    nodes: list(filter.nodeIds),
    protocols: list(filter.protocols),
    sourceLow: source?.low ?? null,
    sourceHigh: source?.high ?? null,
    destLow: dest?.low ?? null,
    destHigh: dest?.high ?? null,
    sourcePort: filter.sourcePort ?? null,
    destPort: filter.destPort ?? null,
    connector: filter.connector ?? null,
    flow: filter.flow ?? null,
    reasons: list(filter.reasons),
    defunct: filter.isDefunct === undefined ? null : Number(filter.isDefunct),
  };
}

function list(values: readonly string[] | undefined): string | null {
  return values === undefined ? null : JSON.stringify(values);
}

function read(row: Row): NodeFlow {
  const [tcpFlags, activityID] = [maybeText(row, "tcp_flags"), maybeText(row, "activity")];
  return {
    nodeId: text(row, "node"),
    sourceNode: text(row, "source_node"),
    destNode: text(row, "dest_node"),
    sourceIP: text(row, "source_ip"),
    destIP: text(row, "dest_ip"),
    sourcePort: number(row, "source_port"),
    destPort: number(row, "dest_port"),
    sourceBytes: number(row, "source_bytes"),
    destBytes: number(row, "dest_bytes"),
    startTime: new Date(number(row, "started_at")).toISOString(),
    endTime: new Date(number(row, "ended_at")).toISOString(),
    protocol: word(row, "protocol", Protocol),
    ...defined({ tcpFlags }),
    flags: String(number(row, "flags")),
    ...defined({ activityID }),
    meta: maybeJson(row, "meta", JsonObject) ?? null,
  };
}
