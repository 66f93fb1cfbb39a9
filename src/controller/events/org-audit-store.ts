import type { Generated, Selectable } from "kysely";
import { HISTORY_ROWS, HISTORY_SECONDS } from "./store.ts";
import type { OrgAudit, OrgAuditFilter, OrgAuditKind } from "./records.ts";
import { storable } from "../store/columns.ts";
import type { Executor } from "../store/database.ts";
import { statement } from "../store/statement.ts";
import { pruner } from "../store/trimmer.ts";

/** Time for which changes are kept, in seconds; authentications are kept as long as events. */
export const CONFIG_AUDIT_SECONDS = 90 * 24 * 3600;

/** Audits of the organization: changes (90 days) and authentications (30 days), at most 200,000 of each. */
export interface OrgAuditStore {
  add(audit: OrgAudit): Promise<void>;
  /** Newest first. */
  find(filter: OrgAuditFilter): Promise<{ readonly total: number; readonly items: readonly OrgAudit[] }>;
  prune(nowSeconds: number): Promise<void>;
}

type OrgAuditTables = {
  readonly org_audits: {
    readonly seq: Generated<number>;
    readonly uid: string;
    readonly kind: string;
    readonly audit_type: string;
    readonly item_type: string;
    readonly item_id: string;
    readonly user_name: string;
    readonly ip: string;
    readonly message: string;
    readonly timestamp: number;
  };
};

const ADD = statement<Omit<Selectable<OrgAuditTables["org_audits"]>, "seq">>()((db, value) =>
  db
    .$extendTables<OrgAuditTables>()
    .insertInto("org_audits")
    .values({
      uid: value("uid"),
      kind: value("kind"),
      audit_type: value("audit_type"),
      item_type: value("item_type"),
      item_id: value("item_id"),
      user_name: value("user_name"),
      ip: value("ip"),
      message: value("message"),
      timestamp: value("timestamp"),
    }),
);

const RETENTION: readonly (readonly [OrgAuditKind, seconds: number])[] = [
  ["config", CONFIG_AUDIT_SECONDS],
  ["user", HISTORY_SECONDS],
];

export function orgAuditStore(executor: Executor): OrgAuditStore {
  const db = executor.$extendTables<OrgAuditTables>();
  const kinds = RETENTION.map(([kind]) => kind);
  const pruneMany = pruner(executor, "org_audits", HISTORY_ROWS, { column: "kind", values: kinds });
  return {
    async add({ uid, kind, auditType, itemType, itemId, userName, ip, message, timestamp }) {
      await ADD(executor, {
        uid,
        kind,
        audit_type: auditType,
        item_type: itemType,
        item_id: storable(itemId),
        user_name: storable(userName),
        ip,
        message: storable(message),
        timestamp,
      });
    },
    async find({ kind, from, to, details, limit, offset, ...wanted }) {
      let found = db.selectFrom("org_audits").where("kind", "=", kind);
      if (from !== undefined) found = found.where("timestamp", ">=", from);
      if (to !== undefined) found = found.where("timestamp", "<=", to);
      for (const [column, value] of [
        ["audit_type", wanted.auditType],
        ["item_type", wanted.itemType],
        ["item_id", wanted.itemId],
        ["user_name", wanted.userName],
        ["ip", wanted.ip],
      ] as const) {
        if (value !== undefined) found = found.where(column, "=", value);
      }
      // Replacing the text with nothing is a search that tells cases apart on both engines.
      if (details !== undefined && details !== "")
        found = found.where((eb) =>
          eb(eb.fn("replace", ["message", eb.val(details), eb.val("")]), "<>", eb.ref("message")),
        );
      const rows = await found.selectAll().orderBy("seq", "desc").limit(limit).offset(offset).execute();
      const count = await found.select((eb) => eb.fn.countAll<number>().as("total")).executeTakeFirst();
      return { total: count?.total ?? 0, items: rows.map((row) => read(kind, row)) };
    },
    async prune(nowSeconds) {
      for (const [kind, seconds] of RETENTION) {
        await db
          .deleteFrom("org_audits")
          .where("kind", "=", kind)
          .where("timestamp", "<", Math.floor(nowSeconds - seconds))
          .execute();
      }
      await pruneMany();
    },
  };
}

function read(kind: OrgAuditKind, row: Selectable<OrgAuditTables["org_audits"]>): OrgAudit {
  return {
    uid: row.uid,
    kind,
    auditType: row.audit_type,
    itemType: row.item_type,
    itemId: row.item_id,
    userName: row.user_name,
    ip: row.ip,
    message: row.message,
    timestamp: row.timestamp,
  };
}
