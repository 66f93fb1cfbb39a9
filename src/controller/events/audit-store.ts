import type { DatabaseSync } from "node:sqlite";
import { HISTORY_ROWS, HISTORY_ROWS_PER_NODE, HISTORY_SECONDS, Origin } from "./store.ts";
import { number, text, word } from "../store/rows.ts";
import { pruner, trimmer } from "../store/trimmer.ts";
import type { AuditFilter, AuditRecord } from "./records.ts";

/** Audit trail of nodes: 30 days, and at most 200,000 records of the control plane and 200,000 of nodes. */
export interface AuditStore {
  add(audit: AuditRecord): void;
  /** Newest first. */
  find(filter: AuditFilter): { readonly total: number; readonly items: readonly AuditRecord[] };
  /** Drops the oldest records of one node beyond its limit. */
  trim(nodeId: string, added: number): void;
  prune(nowSeconds: number): void;
}

const WHERE = `
  (:nodes IS NULL OR node_id IN (SELECT value FROM json_each(:nodes)))
  AND timestamp >= :from AND timestamp <= :to`;

export function auditStore(sql: DatabaseSync): AuditStore {
  const add = sql.prepare(
    "INSERT INTO audits (node_id, fqdn, category, value, timestamp, origin) VALUES (?, ?, ?, ?, ?, ?)",
  );
  const count = sql.prepare(`SELECT count(*) AS total FROM audits WHERE ${WHERE}`);
  const page = sql.prepare(
    `SELECT * FROM audits WHERE ${WHERE} ORDER BY timestamp DESC, seq DESC LIMIT :limit OFFSET :offset`,
  );
  const trim = trimmer(sql, "audits", HISTORY_ROWS_PER_NODE);
  const pruneOld = sql.prepare("DELETE FROM audits WHERE timestamp < ?");
  const pruneMany = pruner(sql, "audits", HISTORY_ROWS);
  return {
    add: ({ nodeId, fqdn, category, value, timestamp, origin }) =>
      void add.run(nodeId, fqdn, category, value, timestamp, origin),
    find({ nodeIds, from = 0, to = Number.MAX_SAFE_INTEGER, limit, offset }) {
      const named = { nodes: nodeIds === undefined ? null : JSON.stringify(nodeIds), from, to };
      const items = page.all({ ...named, limit, offset }).map((row) => ({
        nodeId: text(row, "node_id"),
        fqdn: text(row, "fqdn"),
        category: text(row, "category"),
        value: text(row, "value"),
        timestamp: number(row, "timestamp"),
        origin: word(row, "origin", Origin),
      }));
      return { total: Number(count.get(named)?.["total"] ?? 0), items };
    },
    trim,
    prune(nowSeconds) {
      pruneOld.run(nowSeconds - HISTORY_SECONDS);
      pruneMany();
    },
  };
}
