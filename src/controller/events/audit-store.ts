import { sql, type Generated, type Selectable } from "kysely";
import { HISTORY_ROWS, HISTORY_ROWS_PER_NODE, HISTORY_SECONDS, Origin } from "./store.ts";
import type { AuditFilter, AuditRecord } from "./records.ts";
import { storable, word } from "../store/columns.ts";
import { engineOf, type Executor } from "../store/database.ts";
import { statement } from "../store/statement.ts";
import { pruner, trimmer, type Uncounted } from "../store/trimmer.ts";

/** Audit trail of nodes: 30 days, and at most 200,000 records of the control plane and 200,000 of nodes. */
export interface AuditStore {
  add(audit: AuditRecord): Promise<void>;
  /** Newest first. */
  find(filter: AuditFilter): Promise<{ readonly total: number; readonly items: readonly AuditRecord[] }>;
  /** Drops the oldest records of one node beyond its limit. */
  trim(nodeId: string, added: number): Promise<void>;
  prune(nowSeconds: number): Promise<void>;
}

type AuditTables = {
  readonly audits: {
    readonly seq: Generated<number>;
    readonly node_id: string;
    readonly fqdn: string;
    readonly category: string;
    readonly value: string;
    readonly timestamp: number;
    readonly origin: string;
  };
};

const ADD = statement<Omit<Selectable<AuditTables["audits"]>, "seq">>()((db, value) =>
  db
    .$extendTables<AuditTables>()
    .insertInto("audits")
    .values({
      node_id: value("node_id"),
      fqdn: value("fqdn"),
      category: value("category"),
      value: value("value"),
      timestamp: value("timestamp"),
      origin: value("origin"),
    }),
);

export function auditStore(executor: Executor, uncounted: Uncounted): AuditStore {
  const db = executor.$extendTables<AuditTables>();
  const engine = engineOf(executor);
  const pruneMany = pruner(executor, "audits", HISTORY_ROWS);
  return {
    async add({ nodeId, fqdn, category, value, timestamp, origin }) {
      await ADD(executor, { node_id: nodeId, fqdn, category, value: storable(value), timestamp, origin });
    },
    async find({ nodeIds, from, to, limit, offset }) {
      let found = db.selectFrom("audits");
      if (nodeIds !== undefined) found = found.where(engine.isAnyOf(sql.ref("node_id"), nodeIds));
      if (from !== undefined) found = found.where("timestamp", ">=", from);
      if (to !== undefined) found = found.where("timestamp", "<=", to);
      const rows = await found
        .selectAll()
        .orderBy("timestamp", "desc")
        .orderBy("seq", "desc")
        .limit(limit)
        .offset(offset)
        .execute();
      const count = await found.select((eb) => eb.fn.countAll<number>().as("total")).executeTakeFirst();
      const items = rows.map((row) => ({
        nodeId: row.node_id,
        fqdn: row.fqdn,
        category: row.category,
        value: row.value,
        timestamp: row.timestamp,
        origin: word(row, "origin", Origin),
      }));
      return { total: count?.total ?? 0, items };
    },
    trim: trimmer(executor, uncounted, "audits", HISTORY_ROWS_PER_NODE),
    async prune(nowSeconds) {
      await db
        .deleteFrom("audits")
        .where("timestamp", "<", nowSeconds - HISTORY_SECONDS)
        .execute();
      await pruneMany();
    },
  };
}
