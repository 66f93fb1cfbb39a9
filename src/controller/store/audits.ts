import type { DatabaseSync } from "node:sqlite";
import type { AuditFilter, AuditRecord } from "../fleet.ts";
import { HISTORY_ROWS, HISTORY_ROWS_OF_NODE, HISTORY_SECONDS } from "./events.ts";
import { number, text } from "./rows.ts";
import { trimmer } from "./trimmer.ts";

/** Who did what to a node: 30 days and at most 200,000 lines. */
export interface AuditStore {
  add(audit: AuditRecord): void;
  /** Newest first. */
  find(filter: AuditFilter): { readonly total: number; readonly items: readonly AuditRecord[] };
  /** Drops the oldest of one node beyond its share. */
  trim(nodeId: string): void;
  prune(nowSeconds: number): void;
}

const WHERE = `
  (:nodes IS NULL OR node_id IN (SELECT value FROM json_each(:nodes)))
  AND timestamp >= :from AND timestamp <= :to`;

export function auditStore(sql: DatabaseSync): AuditStore {
  const add = sql.prepare("INSERT INTO audits (node_id, fqdn, category, value, timestamp) VALUES (?, ?, ?, ?, ?)");
  const count = sql.prepare(`SELECT count(*) AS total FROM audits WHERE ${WHERE}`);
  const page = sql.prepare(
    `SELECT * FROM audits WHERE ${WHERE} ORDER BY timestamp DESC, seq DESC LIMIT :limit OFFSET :offset`,
  );
  const trim = trimmer(sql, "audits", "node_id", HISTORY_ROWS_OF_NODE);
  const pruneOld = sql.prepare("DELETE FROM audits WHERE timestamp < ?");
  const pruneMany = sql.prepare("DELETE FROM audits WHERE seq <= (SELECT max(seq) FROM audits) - ?");
  return {
    add: ({ nodeId, fqdn, category, value, timestamp }) => void add.run(nodeId, fqdn, category, value, timestamp),
    find({ nodeIds, from = 0, to = Number.MAX_SAFE_INTEGER, limit, offset }) {
      const named = { nodes: nodeIds === undefined ? null : JSON.stringify(nodeIds), from, to };
      const items = page.all({ ...named, limit, offset }).map((row) => ({
        nodeId: text(row, "node_id"),
        fqdn: text(row, "fqdn"),
        category: text(row, "category"),
        value: text(row, "value"),
        timestamp: number(row, "timestamp"),
      }));
      return { total: Number(count.get(named)?.["total"] ?? 0), items };
    },
    trim,
    prune(nowSeconds) {
      pruneOld.run(nowSeconds - HISTORY_SECONDS);
      pruneMany.run(HISTORY_ROWS);
    },
  };
}
