import type { DatabaseSync } from "node:sqlite";
import { Ed25519PublicKey } from "../../protocol/values/keys.ts";
import { json, text } from "../store/rows.ts";

/** Deleted nodes, kept so that they can be notified and their licenses stay invalid. */
export interface TombstoneStore {
  add(uid: string, key: Ed25519PublicKey, thumbprint: string, atSeconds: number): void;
  get(uid: string): { readonly key: Ed25519PublicKey; readonly thumbprint: string } | undefined;
}

export function tombstoneStore(sql: DatabaseSync): TombstoneStore {
  const add = sql.prepare("INSERT OR REPLACE INTO tombstones VALUES (?, ?, ?, ?)");
  const get = sql.prepare("SELECT auth_key, auth FROM tombstones WHERE uid = ?");
  return {
    add: (uid, key, thumbprint, atSeconds) => void add.run(uid, JSON.stringify(key), thumbprint, Math.floor(atSeconds)),
    get(uid) {
      const row = get.get(uid);
      return row === undefined
        ? undefined
        : { key: json(row, "auth_key", Ed25519PublicKey), thumbprint: text(row, "auth") };
    },
  };
}
