import type { Generated, Selectable } from "kysely";
import { z } from "zod";
import { word } from "../store/columns.ts";
import type { Executor } from "../store/database.ts";
import { statement } from "../store/statement.ts";

/** Events after which a node must connect. */
export const AwaitReason = z.enum(["registration", "configuration", "restart", "reboot"]);
export type AwaitReason = z.infer<typeof AwaitReason>;

/** A node that must connect by `deadline`; times in Unix seconds. */
export interface Awaited {
  readonly uid: string;
  readonly reason: AwaitReason;
  readonly since: number;
  readonly deadline: number;
}

/** Nodes that must connect; survives restarts of the controller. A row is deleted with its node. */
export interface AwaitedStore {
  put(awaited: Awaited): Promise<void>;
  /** Returns the nodes whose deadline has passed and that were not reported. */
  due(nowSeconds: number): Promise<readonly Awaited[]>;
  postpone(uid: string, deadline: number): Promise<void>;
  reported(uid: string): Promise<void>;
  /** Removes a node; returns whether it had been reported. */
  remove(uid: string): Promise<boolean>;
}

type AwaitedTables = {
  readonly awaited: {
    readonly node: string;
    readonly reason: string;
    readonly since: number;
    readonly deadline: number;
    readonly is_reported: Generated<number>;
  };
};

const PUT = statement<Omit<Selectable<AwaitedTables["awaited"]>, "is_reported">>()((db, value) => {
  const row = { reason: value("reason"), since: value("since"), deadline: value("deadline"), is_reported: 0 };
  return db
    .$extendTables<AwaitedTables>()
    .insertInto("awaited")
    .values({ node: value("node"), ...row })
    .onConflict((conflict) => conflict.column("node").doUpdateSet(row));
});

export function awaitedStore(executor: Executor): AwaitedStore {
  const db = executor.$extendTables<AwaitedTables>();
  return {
    async put({ uid, reason, since, deadline }) {
      await PUT(executor, { node: uid, reason, since: Math.floor(since), deadline: Math.ceil(deadline) });
    },
    async due(nowSeconds) {
      const rows = await db
        .selectFrom("awaited")
        .select(["node", "reason", "since", "deadline"])
        .where("is_reported", "=", 0)
        .where("deadline", "<=", Math.floor(nowSeconds))
        .orderBy("deadline")
        .execute();
      return rows.map((row) => ({
        uid: row.node,
        reason: word(row, "reason", AwaitReason),
        since: row.since,
        deadline: row.deadline,
      }));
    },
    async postpone(uid, deadline) {
      await db
        .updateTable("awaited")
        .set({ deadline: Math.ceil(deadline) })
        .where("node", "=", uid)
        .execute();
    },
    async reported(uid) {
      await db.updateTable("awaited").set({ is_reported: 1 }).where("node", "=", uid).execute();
    },
    async remove(uid) {
      const row = await db.deleteFrom("awaited").where("node", "=", uid).returning("is_reported").executeTakeFirst();
      return row?.is_reported === 1;
    },
  };
}
