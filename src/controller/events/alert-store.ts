import type { DatabaseSync } from "node:sqlite";
import { ALERT_LIFETIME_SECONDS } from "./alert-rules.ts";
import { number, text, type Row } from "../store/rows.ts";
import type { AlertRecord } from "./records.ts";

/** Open alerts, at most one per event type and node. */
export interface AlertStore {
  /** Opens an alert; an open one stays unchanged. */
  open(alert: AlertRecord): void;
  close(nodeId: string, eventType: string): boolean;
  closeAll(nodeId: string): void;
  all(nowSeconds: number): readonly AlertRecord[];
  ofNode(nodeId: string, nowSeconds: number): readonly AlertRecord[];
  prune(nowSeconds: number): void;
}

export function alertStore(sql: DatabaseSync): AlertStore {
  const open = sql.prepare(
    `INSERT INTO alerts (node_id, event_type, uid, node_name, message, timestamp) VALUES (?, ?, ?, ?, ?, ?)
     ON CONFLICT DO UPDATE SET uid = excluded.uid, node_name = excluded.node_name, message = excluded.message,
       timestamp = excluded.timestamp WHERE alerts.timestamp < ?`,
  );
  const close = sql.prepare("DELETE FROM alerts WHERE node_id = ? AND event_type = ? RETURNING timestamp");
  const closeAll = sql.prepare("DELETE FROM alerts WHERE node_id = ?");
  const all = sql.prepare("SELECT * FROM alerts WHERE timestamp >= ? ORDER BY timestamp DESC, uid DESC");
  const ofNode = sql.prepare(
    "SELECT * FROM alerts WHERE node_id = ? AND timestamp >= ? ORDER BY timestamp DESC, uid DESC",
  );
  const prune = sql.prepare("DELETE FROM alerts WHERE timestamp < ?");
  const oldest = (nowSeconds: number): number => nowSeconds - ALERT_LIFETIME_SECONDS;
  return {
    open: ({ nodeId, eventType, uid, nodeName, message, timestamp }) =>
      void open.run(nodeId, eventType, uid, nodeName, message, timestamp, oldest(timestamp)),
    close: (nodeId, eventType) => close.get(nodeId, eventType) !== undefined,
    closeAll: (nodeId) => void closeAll.run(nodeId),
    all: (nowSeconds) => all.all(oldest(nowSeconds)).map(read),
    ofNode: (nodeId, nowSeconds) => ofNode.all(nodeId, oldest(nowSeconds)).map(read),
    prune: (nowSeconds) => void prune.run(oldest(nowSeconds)),
  };
}

function read(row: Row): AlertRecord {
  return {
    uid: text(row, "uid"),
    eventType: text(row, "event_type"),
    message: text(row, "message"),
    nodeId: text(row, "node_id"),
    nodeName: text(row, "node_name"),
    timestamp: number(row, "timestamp"),
  };
}
