import { Ed25519PublicKey } from "../../protocol/values/keys.ts";
import { json } from "../store/columns.ts";
import type { Executor } from "../store/database.ts";

/** Deleted nodes, kept so that they can be notified and their licenses stay invalid. */
export interface TombstoneStore {
  add(uid: string, key: Ed25519PublicKey, thumbprint: string, atSeconds: number): Promise<void>;
  get(uid: string): Promise<{ readonly key: Ed25519PublicKey; readonly thumbprint: string } | undefined>;
}

type TombstoneTables = {
  readonly tombstones: {
    readonly uid: string;
    readonly auth_key: string;
    readonly auth: string;
    readonly deleted_at: number;
  };
};

export function tombstoneStore(executor: Executor): TombstoneStore {
  const db = executor.$extendTables<TombstoneTables>();
  return {
    async add(uid, key, thumbprint, atSeconds) {
      const row = { auth_key: JSON.stringify(key), auth: thumbprint, deleted_at: Math.floor(atSeconds) };
      await db
        .insertInto("tombstones")
        .values({ uid, ...row })
        .onConflict((conflict) => conflict.column("uid").doUpdateSet(row))
        .execute();
    },
    async get(uid) {
      const row = await db
        .selectFrom("tombstones")
        .select(["auth_key", "auth"])
        .where("uid", "=", uid)
        .executeTakeFirst();
      return row === undefined ? undefined : { key: json(row, "auth_key", Ed25519PublicKey), thumbprint: row.auth };
    },
  };
}
