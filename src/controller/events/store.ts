import type { DatabaseSync } from "node:sqlite";
import { z } from "zod";
import { EventLevel, EventState } from "../../protocol/documents/telemetry.ts";
import { JsonObject } from "../../protocol/values/values.ts";
import { json, number, text, word, type Row } from "../store/rows.ts";
import { pruner, trimmer } from "../store/trimmer.ts";
import type { EventFilter, EventRecord } from "./records.ts";

/** Origin of a record. Records of the control plane are limited separately, so that a node cannot displace them. */
export const Origin = z.enum(["control-plane", "node"]);

/** Events of all nodes, including deleted ones: 30 days, and at most 200,000 of the control plane and 200,000 of nodes. */
export interface EventStore {
  add(event: EventRecord): void;
  find(filter: EventFilter): { readonly total: number; readonly items: readonly EventRecord[] };
  get(nodeId: string, uid: string): EventRecord | undefined;
  /** Drops the oldest events of one node beyond its limit. */
  trim(nodeId: string, added: number): void;
  prune(nowSeconds: number): void;
}

export const HISTORY_SECONDS = 30 * 24 * 3600;
export const HISTORY_ROWS = 200_000;
/** Limit of rows per node. */
export const HISTORY_ROWS_PER_NODE = 20_000;

const Subject = z.enum(["Node", "Certificate", "Order", "Upgrade", "AlertSuppression"]);

const WHERE = `
  (:nodes IS NULL OR node_id IN (SELECT value FROM json_each(:nodes)))
  AND (:types IS NULL OR event_type IN (SELECT value FROM json_each(:types)))
  AND (:levels IS NULL OR level IN (SELECT value FROM json_each(:levels)))
  AND (:subjects IS NULL OR subject IN (SELECT value FROM json_each(:subjects)))
  AND timestamp >= :from AND timestamp <= :to
  AND (:text IS NULL OR instr(lower(message || ' ' || event_type || ' ' || fqdn), lower(:text)) > 0)`;
const LEVEL_RANK = "CASE level WHEN 'INFO' THEN 0 WHEN 'WARNING' THEN 1 WHEN 'ERROR' THEN 2 ELSE 3 END";

export function eventStore(sql: DatabaseSync): EventStore {
  const add = sql.prepare(
    `INSERT INTO events (uid, node_id, node_name, fqdn, domain, org, event_type, level, message, state, subject, timestamp,
       received_time, details, origin)
     VALUES (:uid, :nodeId, :nodeName, :fqdn, :domain, :orgId, :eventType, :level, :message, :state, :subject, :timestamp,
       :receivedTime, :details, :origin)`,
  );
  const count = sql.prepare(`SELECT count(*) AS total FROM events WHERE ${WHERE}`);
  const select = (order: string) =>
    sql.prepare(`SELECT * FROM events WHERE ${WHERE} ORDER BY ${order} LIMIT :limit OFFSET :offset`);
  const pages = {
    "timestamp asc": select("timestamp ASC, seq ASC"),
    "timestamp desc": select("timestamp DESC, seq DESC"),
    "level asc": select(`${LEVEL_RANK} ASC, timestamp DESC, seq DESC`),
    "level desc": select(`${LEVEL_RANK} DESC, timestamp DESC, seq DESC`),
  };
  const one = sql.prepare("SELECT * FROM events WHERE node_id = ? AND uid = ?");
  const trim = trimmer(sql, "events", HISTORY_ROWS_PER_NODE);
  const pruneOld = sql.prepare("DELETE FROM events WHERE received_time < ?");
  const pruneMany = pruner(sql, "events", HISTORY_ROWS);
  return {
    add: (event) => void add.run({ ...event, details: JSON.stringify(event.details) }),
    find(filter) {
      const named = {
        nodes: list(filter.nodeIds),
        types: list(filter.eventTypes),
        levels: list(filter.levels),
        subjects: list(filter.subjects),
        from: filter.from ?? 0,
        to: filter.to ?? Number.MAX_SAFE_INTEGER,
        text: filter.text ?? null,
      };
      const total = Number(count.get(named)?.["total"] ?? 0);
      const page = pages[`${filter.sort.by} ${filter.sort.order}`];
      return { total, items: page.all({ ...named, limit: filter.limit, offset: filter.offset }).map(read) };
    },
    get(nodeId, uid) {
      const row = one.get(nodeId, uid);
      return row === undefined ? undefined : read(row);
    },
    trim,
    prune(nowSeconds) {
      pruneOld.run(nowSeconds - HISTORY_SECONDS);
      pruneMany();
    },
  };
}

function list(values: readonly string[] | undefined): string | null {
  return values === undefined ? null : JSON.stringify(values);
}

function read(row: Row): EventRecord {
  return {
    uid: text(row, "uid"),
    eventType: text(row, "event_type"),
    level: word(row, "level", EventLevel),
    message: text(row, "message"),
    timestamp: number(row, "timestamp"),
    receivedTime: number(row, "received_time"),
    details: json(row, "details", JsonObject),
    state: word(row, "state", EventState),
    subject: word(row, "subject", Subject),
    orgId: text(row, "org"),
    nodeId: text(row, "node_id"),
    nodeName: text(row, "node_name"),
    domain: text(row, "domain"),
    fqdn: text(row, "fqdn"),
    origin: word(row, "origin", Origin),
  };
}
