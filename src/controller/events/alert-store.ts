import type { Selectable } from "kysely";
import { ALERT_LIFETIME_SECONDS } from "./alert-rules.ts";
import type { AlertRecord } from "./records.ts";
import { storable } from "../store/columns.ts";
import type { Executor } from "../store/database.ts";

/** Open alerts, at most one per event type and node. */
export interface AlertStore {
  /** Opens an alert; an open one stays unchanged. */
  open(alert: AlertRecord): Promise<void>;
  close(nodeId: string, eventType: string): Promise<boolean>;
  closeAll(nodeId: string): Promise<void>;
  /** Returns the number of alerts of a node, those included that are past their lifetime and not yet pruned. */
  countOf(nodeId: string): Promise<number>;
  all(nowSeconds: number): Promise<readonly AlertRecord[]>;
  ofNode(nodeId: string, nowSeconds: number): Promise<readonly AlertRecord[]>;
  prune(nowSeconds: number): Promise<void>;
}

type AlertTables = {
  readonly alerts: {
    readonly node_id: string;
    readonly event_type: string;
    readonly uid: string;
    readonly node_name: string;
    readonly message: string;
    readonly timestamp: number;
  };
};

export function alertStore(executor: Executor): AlertStore {
  const db = executor.$extendTables<AlertTables>();
  const oldest = (nowSeconds: number): number => nowSeconds - ALERT_LIFETIME_SECONDS;
  const since = (nowSeconds: number) =>
    db
      .selectFrom("alerts")
      .selectAll()
      .where("timestamp", ">=", oldest(nowSeconds))
      .orderBy("timestamp", "desc")
      .orderBy("uid", "desc");
  return {
    async open({ nodeId, eventType, uid, nodeName, message, timestamp }) {
      const row = { uid, node_name: nodeName, message: storable(message), timestamp };
      await db
        .insertInto("alerts")
        .values({ node_id: nodeId, event_type: eventType, ...row })
        .onConflict((conflict) =>
          conflict
            .columns(["node_id", "event_type"])
            .doUpdateSet(row)
            .where("alerts.timestamp", "<", oldest(timestamp)),
        )
        .execute();
    },
    async close(nodeId, eventType) {
      const { numDeletedRows } = await db
        .deleteFrom("alerts")
        .where("node_id", "=", nodeId)
        .where("event_type", "=", eventType)
        .executeTakeFirst();
      return numDeletedRows > 0n;
    },
    async closeAll(nodeId) {
      await db.deleteFrom("alerts").where("node_id", "=", nodeId).execute();
    },
    async countOf(nodeId) {
      const count = db.selectFrom("alerts").select((eb) => eb.fn.countAll<number>().as("total"));
      return (await count.where("node_id", "=", nodeId).executeTakeFirst())?.total ?? 0;
    },
    all: async (nowSeconds) => (await since(nowSeconds).execute()).map(read),
    ofNode: async (nodeId, nowSeconds) => (await since(nowSeconds).where("node_id", "=", nodeId).execute()).map(read),
    async prune(nowSeconds) {
      await db.deleteFrom("alerts").where("timestamp", "<", oldest(nowSeconds)).execute();
    },
  };
}

function read(row: Selectable<AlertTables["alerts"]>): AlertRecord {
  return {
    uid: row.uid,
    eventType: row.event_type,
    message: row.message,
    nodeId: row.node_id,
    nodeName: row.node_name,
    timestamp: row.timestamp,
  };
}
