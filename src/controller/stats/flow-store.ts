import { sql, type Generated, type RawBuilder, type Selectable, type SqlBool } from "kysely";
import { addressRange } from "../../lib/net/cidr.ts";
import { DEFUNCT_FLAGS, FlowRecord } from "../../protocol/documents/telemetry.ts";
import { JsonObject } from "../../protocol/values/values.ts";
import { FLOWS_SECONDS, MAX_FLOWS_FOUND, USAGE_SECONDS, usageBuckets, usageOf } from "./flows.ts";
import { defined } from "../../lib/defined.ts";
import { maybeJson, storable, word } from "../store/columns.ts";
import { engineOf, type Executor } from "../store/database.ts";
import { statement } from "../store/statement.ts";
import type { Uncounted } from "../store/trimmer.ts";
import type { FlowFilter, FlowOp, FlowSearch, NodeFlow } from "./records.ts";

/** Flow records of all nodes, including deleted ones: 30 days and at most 500,000; and their sums per minute for 90 days. */
export interface FlowStore extends FlowSearch {
  /** Stores records of a node, and drops its oldest beyond its limit of 100,000. */
  add(nodeId: string, flows: readonly FlowRecord[]): Promise<void>;
  prune(nowSeconds: number): Promise<void>;
}

/** Returns the UIDs of nodes by their names. */
export type UidsOf = (names: readonly string[]) => Promise<ReadonlyMap<string, string>>;

/** Limit of rows: a search may scan all of them. */
const ROWS = 500_000;
const ROWS_PER_NODE = 100_000;
/** Rows by which a node may exceed its limit before they are dropped in bulk; counting and dropping are slow. */
const SLACK = 5000;

type FlowTables = {
  readonly flows: {
    readonly seq: Generated<number>;
    readonly node: string;
    readonly source_node: string;
    readonly dest_node: string;
    readonly source_ip: string;
    readonly dest_ip: string;
    readonly source_key: Uint8Array | null;
    readonly dest_key: Uint8Array | null;
    readonly source_port: number;
    readonly dest_port: number;
    readonly source_bytes: number;
    readonly dest_bytes: number;
    readonly started_at: number;
    readonly ended_at: number;
    readonly protocol: string;
    readonly tcp_flags: string | null;
    readonly flags: number;
    readonly activity: string | null;
    readonly meta: string | null;
  };
  readonly flow_usage: {
    readonly node: string;
    readonly t: number;
    readonly source: string;
    readonly bytes: number;
    readonly count: number;
  };
};
type FlowRow = Selectable<FlowTables["flows"]>;

const ADD = statement<Omit<FlowRow, "seq">>()((db, value) =>
  db
    .$extendTables<FlowTables>()
    .insertInto("flows")
    .values({
      node: value("node"),
      source_node: value("source_node"),
      dest_node: value("dest_node"),
      source_ip: value("source_ip"),
      dest_ip: value("dest_ip"),
      source_key: value("source_key"),
      dest_key: value("dest_key"),
      source_port: value("source_port"),
      dest_port: value("dest_port"),
      source_bytes: value("source_bytes"),
      dest_bytes: value("dest_bytes"),
      started_at: value("started_at"),
      ended_at: value("ended_at"),
      protocol: value("protocol"),
      tcp_flags: value("tcp_flags"),
      flags: value("flags"),
      activity: value("activity"),
      meta: value("meta"),
    }),
);
const MAX = sql.lit(Number.MAX_SAFE_INTEGER);
const ADD_USAGE = statement<FlowTables["flow_usage"]>()((db, value) =>
  db
    .$extendTables<FlowTables>()
    .insertInto("flow_usage")
    .values({
      node: value("node"),
      t: value("t"),
      source: value("source"),
      bytes: value("bytes"),
      count: value("count"),
    })
    .onConflict((conflict) =>
      conflict.columns(["node", "t", "source"]).doUpdateSet({
        bytes: sql`case when flow_usage.bytes > ${MAX} - excluded.bytes then ${MAX} else flow_usage.bytes + excluded.bytes end`,
        count: sql`flow_usage.count + excluded.count`,
      }),
    ),
);
const Protocol = FlowRecord.shape.protocol;

export function flowStore(executor: Executor, uncounted: Uncounted, uidsOf: UidsOf): FlowStore {
  const db = executor.$extendTables<FlowTables>();
  const engine = engineOf(executor);

  const trim = async (node: string): Promise<void> => {
    const ofNode = db.selectFrom("flows").where("node", "=", node);
    const count = await ofNode.select((eb) => eb.fn.countAll<number>().as("total")).executeTakeFirst();
    const over = (count?.total ?? 0) - ROWS_PER_NODE;
    if (over <= 0) return;
    await db.deleteFrom("flows").where("seq", "in", ofNode.select("seq").orderBy("ended_at").limit(over)).execute();
  };
  const matching = (filter: FlowFilter) => {
    let found = db
      .selectFrom("flows")
      .where("ended_at", ">=", Math.floor(filter.from * 1000))
      .where("ended_at", "<=", Math.floor(filter.to * 1000));
    const lists = [
      [sql.ref("node"), filter.nodeIds],
      [sql.ref("protocol"), filter.protocols],
      [engine.jsonField(sql.ref("meta"), "reason"), filter.reasons],
    ] as const;
    for (const [column, list] of lists) if (list !== undefined) found = found.where(engine.isAnyOf(column, list));
    const { ended, connector, flow, isDefunct } = filter;
    if (ended !== undefined) {
      found = found.where(compared(sql.ref("ended_at"), ended.op, ended.second * 1000, ended.second * 1000 + 999));
    }
    const direct = endConditions(filter, "source", "dest");
    const either = filter.isEitherWay === true ? [direct, endConditions(filter, "dest", "source")] : [direct];
    if (direct.length > 0) found = found.where(anyOf(either.map(allOf)));
    const masks = [
      [sql`cast(tcp_flags as ${engine.types.integer})`, filter.tcpFlags],
      [sql.ref("flags"), filter.flags],
    ] as const;
    for (const [column, mask] of masks) {
      if (mask !== undefined) found = found.where(sql<SqlBool>`(${column} & ${sql.lit(mask)}) = ${sql.lit(mask)}`);
    }
    if (connector !== undefined) found = found.where(engine.jsonField(sql.ref("meta"), "connector"), "=", connector);
    if (flow !== undefined) found = found.where(engine.jsonField(sql.ref("meta"), "flow"), "=", flow);
    if (isDefunct !== undefined) {
      found = found.where(sql<number>`(flags & ${sql.lit(DEFUNCT_FLAGS)})`, isDefunct ? "<>" : "=", 0);
    }
    return found;
  };

  return {
    async add(node, flows) {
      for (const flow of flows) await ADD(executor, rowOf(node, flow));
      const uids = await uidsOf([...new Set(flows.map(({ sourceNode }) => sourceNode))]);
      for (const { t, source, bytes, count } of usageOf(flows, node, (name) => uids.get(name))) {
        await ADD_USAGE(executor, { node, t, source, bytes, count });
      }
      if (uncounted.isDue(`flows ${node}`, flows.length, SLACK)) await trim(node);
    },
    async find(filter) {
      const found = matching(filter);
      const { offset, order } = filter;
      const limit = Math.max(0, Math.min(filter.limit, MAX_FLOWS_FOUND - offset));
      const rows = await found
        .selectAll()
        .orderBy("ended_at", order)
        .orderBy("seq", order)
        .limit(limit)
        .offset(offset)
        .execute();
      const items = rows.map(read);
      // The last page implies the total, so that a small result needs no second query.
      if (items.length < limit && (items.length > 0 || offset === 0)) return { total: offset + items.length, items };
      const count = await db
        .selectFrom(found.select("seq").limit(MAX_FLOWS_FOUND).as("found"))
        .select((eb) => eb.fn.countAll<number>().as("total"))
        .executeTakeFirst();
      return { total: count?.total ?? 0, items };
    },
    async usage(range, nodeIds) {
      const { from, to, bucketSeconds: size } = range;
      const { integer, real } = engine.types;
      const reported = sql`source = ''`;
      // Of a flow that both ends report, only the record of its source counts if both are asked for.
      const counts =
        nodeIds === undefined
          ? reported
          : sql`${engine.isAnyOf(sql.ref("node"), nodeIds)} and (${reported} or not ${engine.isAnyOf(sql.ref("source"), nodeIds)})`;
      const { rows } = await sql<{ readonly index: number; readonly bytes: number; readonly count: number }>`
        select cast((t - ${from}) / ${size} as ${integer}) as "index", sum(cast(bytes as ${real})) as bytes, sum(count) as count
        from flow_usage where t >= ${from} and t < ${Math.ceil(to)} and ${counts} group by 1`.execute(db);
      const counted = rows.map(({ index, count, bytes }) => ({
        index,
        count,
        bytes: Math.min(bytes, Number.MAX_SAFE_INTEGER),
      }));
      return usageBuckets(range, counted);
    },
    async prune(nowSeconds) {
      await db
        .deleteFrom("flows")
        .where("ended_at", "<", Math.floor((nowSeconds - FLOWS_SECONDS) * 1000))
        .execute();
      await sql`delete from flows where seq <= (select max(seq) from flows) - ${sql.lit(ROWS)}`.execute(db);
      await db
        .deleteFrom("flow_usage")
        .where("t", "<", Math.floor(nowSeconds - USAGE_SECONDS))
        .execute();
    },
  };
}

type End = "source" | "dest";
const COLUMNS = {
  source: { node: sql.ref("source_node"), key: sql.ref("source_key"), port: sql.ref("source_port") },
  dest: { node: sql.ref("dest_node"), key: sql.ref("dest_key"), port: sql.ref("dest_port") },
} as const;

/** Returns what a filter asks of both ends, with the columns of these ends in place of its source and destination. */
function endConditions(filter: FlowFilter, source: End, dest: End): readonly RawBuilder<SqlBool>[] {
  const { sourceNode, destNode, sourcePort, destPort, ops = {} } = filter;
  const [from, to] = [COLUMNS[source], COLUMNS[dest]];
  return [
    ...(sourceNode === undefined ? [] : [sql<SqlBool>`${from.node} = ${sourceNode}`]),
    ...(destNode === undefined ? [] : [sql<SqlBool>`${to.node} = ${destNode}`]),
    ...(filter.source === undefined ? [] : addressConditions(from.key, ops.source, filter.source)),
    ...(filter.dest === undefined ? [] : addressConditions(to.key, ops.dest, filter.dest)),
    ...(sourcePort === undefined ? [] : [compared(from.port, ops.sourcePort, sourcePort, sourcePort)]),
    ...(destPort === undefined ? [] : [compared(to.port, ops.destPort, destPort, destPort)]),
  ];
}

function addressConditions(
  column: RawBuilder<unknown>,
  op: FlowOp = "eq",
  block: string,
): readonly RawBuilder<SqlBool>[] {
  const range = addressRange(block);
  const family = addressRange(block.includes(":") ? "::/0" : "0.0.0.0/0");
  if (range === undefined || family === undefined) return [];
  const isOrdered = op !== "eq" && op !== "ne";
  return [
    compared(column, op, range.low, range.high),
    ...(isOrdered ? [compared(column, "eq", family.low, family.high)] : []),
  ];
}

/** Returns the condition that a column compares with a range, both ends inclusive; `ne` holds for NULL. */
function compared<T extends number | Uint8Array>(
  column: RawBuilder<unknown>,
  op: FlowOp = "eq",
  low: T,
  high: T,
): RawBuilder<SqlBool> {
  switch (op) {
    case "eq":
      return sql`${column} between ${low} and ${high}`;
    case "ne":
      return sql`(${column} is null or ${column} not between ${low} and ${high})`;
    case "gt":
      return sql`${column} > ${high}`;
    case "gte":
      return sql`${column} >= ${low}`;
    case "lt":
      return sql`${column} < ${low}`;
    case "lte":
      return sql`${column} <= ${high}`;
  }
}

const allOf = (conditions: readonly RawBuilder<SqlBool>[]): RawBuilder<SqlBool> =>
  sql`(${sql.join(conditions, sql` and `)})`;
const anyOf = (conditions: readonly RawBuilder<SqlBool>[]): RawBuilder<SqlBool> =>
  sql`(${sql.join(conditions, sql` or `)})`;

function rowOf(node: string, flow: FlowRecord): Omit<FlowRow, "seq"> {
  const { sourceIP, destIP, meta } = flow;
  return {
    node,
    source_node: storable(flow.sourceNode),
    dest_node: storable(flow.destNode),
    source_ip: sourceIP,
    dest_ip: destIP,
    source_key: keyOf(sourceIP),
    dest_key: keyOf(destIP),
    source_port: flow.sourcePort,
    dest_port: flow.destPort,
    source_bytes: flow.sourceBytes,
    dest_bytes: flow.destBytes,
    started_at: Date.parse(flow.startTime),
    ended_at: Date.parse(flow.endTime),
    protocol: flow.protocol,
    tcp_flags: flow.tcpFlags ?? null,
    flags: Number(flow.flags),
    activity: flow.activityID === undefined ? null : storable(flow.activityID),
    meta: meta === undefined || meta === null ? null : JSON.stringify(meta),
  };
}

/** Returns the sort key of an address; a zone is ignored, as it names a link. */
function keyOf(address: string): Uint8Array | null {
  return addressRange(address.replace(/%.*$/, ""))?.low ?? null;
}

function read(row: FlowRow): NodeFlow {
  const [tcpFlags, activityID] = [row.tcp_flags ?? undefined, row.activity ?? undefined];
  return {
    nodeId: row.node,
    sourceNode: row.source_node,
    destNode: row.dest_node,
    sourceIP: row.source_ip,
    destIP: row.dest_ip,
    sourcePort: row.source_port,
    destPort: row.dest_port,
    sourceBytes: row.source_bytes,
    destBytes: row.dest_bytes,
    startTime: new Date(row.started_at).toISOString(),
    endTime: new Date(row.ended_at).toISOString(),
    protocol: word(row, "protocol", Protocol),
    ...defined({ tcpFlags }),
    flags: String(row.flags),
    ...defined({ activityID }),
    meta: maybeJson(row, "meta", JsonObject) ?? null,
  };
}
