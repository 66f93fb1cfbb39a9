import type { DatabaseSync } from "node:sqlite";
import type { AuditRecord } from "../fleet.ts";
import { HISTORY_ROWS, HISTORY_ROWS_OF_NODE, HISTORY_SECONDS } from "./events.ts";
import { number, text } from "./rows.ts";
import { trimmer } from "./trimmer.ts";

/** Who did what to a node: 30 days and at most 200,000 lines. */
export interface AuditStore {
  add(audit: AuditRecord): void;
  /** Newest first, at most 1,000. */
  ofNode(nodeId: string): readonly AuditRecord[];
  /** Drops the oldest of one node beyond its share. */
  trim(nodeId: string): void;
  prune(nowSeconds: number): void;
}

export function auditStore(sql: DatabaseSync): AuditStore {
  const add = sql.prepare("INSERT INTO audits (node_id, fqdn, category, value, timestamp) VALUES (?, ?, ?, ?, ?)");
  const ofNode = sql.prepare("SELECT * FROM audits WHERE node_id = ? ORDER BY timestamp DESC, seq DESC LIMIT 1000");
  const trim = trimmer(sql, "audits", "node_id", HISTORY_ROWS_OF_NODE);
  const pruneOld = sql.prepare("DELETE FROM audits WHERE timestamp < ?");
  const pruneMany = sql.prepare("DELETE FROM audits WHERE seq <= (SELECT max(seq) FROM audits) - ?");
  return {
    add: ({ nodeId, fqdn, category, value, timestamp }) => void add.run(nodeId, fqdn, category, value, timestamp),
    ofNode: (nodeId) =>
      ofNode.all(nodeId).map((row) => ({
        nodeId: text(row, "node_id"),
        fqdn: text(row, "fqdn"),
        category: text(row, "category"),
        value: text(row, "value"),
        timestamp: number(row, "timestamp"),
      })),
    trim,
    prune(nowSeconds) {
      pruneOld.run(nowSeconds - HISTORY_SECONDS);
      pruneMany.run(HISTORY_ROWS);
    },
  };
}
