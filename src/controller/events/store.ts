import { sql, type Generated, type Selectable } from "kysely";
import { z } from "zod";
import { EventLevel, EventState } from "../../protocol/documents/telemetry.ts";
import { JsonObject } from "../../protocol/values/values.ts";
import type { EventFilter, EventRecord } from "./records.ts";
import { json, storable, word } from "../store/columns.ts";
import { engineOf, type Executor } from "../store/database.ts";
import { statement } from "../store/statement.ts";
import { pruner, trimmer, type Uncounted } from "../store/trimmer.ts";

/** Origin of a record. Records of the control plane are limited separately, so that a node cannot displace them. */
export const Origin = z.enum(["control-plane", "node"]);

/** Events of all nodes, including deleted ones: 30 days, and at most 200,000 of the control plane and 200,000 of nodes. */
export interface EventStore {
  add(event: EventRecord): Promise<void>;
  find(filter: EventFilter): Promise<{ readonly total: number; readonly items: readonly EventRecord[] }>;
  get(nodeId: string, uid: string): Promise<EventRecord | undefined>;
  /** Drops the oldest events of one node beyond its limit. */
  trim(nodeId: string, added: number): Promise<void>;
  prune(nowSeconds: number): Promise<void>;
}

export const HISTORY_SECONDS = 30 * 24 * 3600;
export const HISTORY_ROWS = 200_000;
/** Limit of rows per node. */
export const HISTORY_ROWS_PER_NODE = 20_000;

const Subject = z.enum(["Node", "Cluster", "Org", "Certificate", "Order", "Upgrade", "AlertSuppression"]);

type EventTables = {
  readonly events: {
    readonly seq: Generated<number>;
    readonly uid: string;
    readonly node_id: string;
    readonly node_name: string;
    readonly fqdn: string;
    readonly domain: string;
    readonly org: string;
    readonly event_type: string;
    readonly level: string;
    readonly message: string;
    readonly state: string;
    readonly subject: string;
    readonly timestamp: number;
    readonly received_time: number;
    readonly details: string;
    readonly origin: string;
  };
};

const ADD = statement<Omit<Selectable<EventTables["events"]>, "seq">>()((db, value) =>
  db
    .$extendTables<EventTables>()
    .insertInto("events")
    .values({
      uid: value("uid"),
      node_id: value("node_id"),
      node_name: value("node_name"),
      fqdn: value("fqdn"),
      domain: value("domain"),
      org: value("org"),
      event_type: value("event_type"),
      level: value("level"),
      message: value("message"),
      state: value("state"),
      subject: value("subject"),
      timestamp: value("timestamp"),
      received_time: value("received_time"),
      details: value("details"),
      origin: value("origin"),
    }),
);

const LEVEL_RANK = sql<number>`case level when 'INFO' then 0 when 'WARNING' then 1 when 'ERROR' then 2 else 3 end`;
const SEARCHED = sql`(message || ' ' || event_type || ' ' || fqdn)`;

export function eventStore(executor: Executor, uncounted: Uncounted): EventStore {
  const db = executor.$extendTables<EventTables>();
  const engine = engineOf(executor);
  const pruneMany = pruner(executor, "events", HISTORY_ROWS);
  const matching = ({ nodeIds, eventTypes, levels, subjects, from, to, text }: EventFilter) => {
    const lists = { node_id: nodeIds, event_type: eventTypes, level: levels, subject: subjects };
    let found = db.selectFrom("events");
    for (const [column, list] of Object.entries(lists)) {
      if (list !== undefined) found = found.where(engine.isAnyOf(sql.ref(column), list));
    }
    if (from !== undefined) found = found.where("timestamp", ">=", from);
    if (to !== undefined) found = found.where("timestamp", "<=", to);
    if (text !== undefined) found = found.where(engine.contains(SEARCHED, text));
    return found;
  };
  return {
    async add(event) {
      await ADD(executor, {
        uid: event.uid,
        node_id: event.nodeId,
        node_name: event.nodeName,
        fqdn: event.fqdn,
        domain: event.domain,
        org: event.orgId,
        event_type: event.eventType,
        level: event.level,
        message: storable(event.message),
        state: event.state,
        subject: event.subject,
        timestamp: event.timestamp,
        received_time: event.receivedTime,
        details: JSON.stringify(event.details),
        origin: event.origin,
      });
    },
    async find(filter) {
      const found = matching(filter);
      const { by, order } = filter.sort;
      const page = found.selectAll().limit(filter.limit).offset(filter.offset);
      const sorted =
        by === "timestamp"
          ? page.orderBy("timestamp", order).orderBy("seq", order)
          : page.orderBy(LEVEL_RANK, order).orderBy("timestamp", "desc").orderBy("seq", "desc");
      const count = await found.select((eb) => eb.fn.countAll<number>().as("total")).executeTakeFirst();
      return { total: count?.total ?? 0, items: (await sorted.execute()).map(read) };
    },
    async get(nodeId, uid) {
      const row = await db
        .selectFrom("events")
        .selectAll()
        .where("node_id", "=", nodeId)
        .where("uid", "=", uid)
        .executeTakeFirst();
      return row === undefined ? undefined : read(row);
    },
    trim: trimmer(executor, uncounted, "events", HISTORY_ROWS_PER_NODE),
    async prune(nowSeconds) {
      await db
        .deleteFrom("events")
        .where("received_time", "<", nowSeconds - HISTORY_SECONDS)
        .execute();
      await pruneMany();
    },
  };
}

function read(row: Selectable<EventTables["events"]>): EventRecord {
  return {
    uid: row.uid,
    eventType: row.event_type,
    level: word(row, "level", EventLevel),
    message: row.message,
    timestamp: row.timestamp,
    receivedTime: row.received_time,
    details: json(row, "details", JsonObject),
    state: word(row, "state", EventState),
    subject: word(row, "subject", Subject),
    orgId: row.org,
    nodeId: row.node_id,
    nodeName: row.node_name,
    domain: row.domain,
    fqdn: row.fqdn,
    origin: word(row, "origin", Origin),
  };
}
