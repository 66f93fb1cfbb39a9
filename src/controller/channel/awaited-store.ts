import type { DatabaseSync } from "node:sqlite";
import { z } from "zod";
import { number, text, word } from "../store/rows.ts";

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
  put(awaited: Awaited): void;
  /** Returns the nodes whose deadline has passed and that were not reported. */
  due(nowSeconds: number): readonly Awaited[];
  postpone(uid: string, deadline: number): void;
  reported(uid: string): void;
  /** Removes a node; returns whether it had been reported. */
  remove(uid: string): boolean;
}

export function awaitedStore(sql: DatabaseSync): AwaitedStore {
  const put = sql.prepare("INSERT OR REPLACE INTO awaited (node, reason, since, deadline) VALUES (?, ?, ?, ?)");
  const due = sql.prepare("SELECT * FROM awaited WHERE is_reported = 0 AND deadline <= ? ORDER BY deadline");
  const postpone = sql.prepare("UPDATE awaited SET deadline = ? WHERE node = ?");
  const reported = sql.prepare("UPDATE awaited SET is_reported = 1 WHERE node = ?");
  const remove = sql.prepare("DELETE FROM awaited WHERE node = ? RETURNING is_reported");
  return {
    put: ({ uid, reason, since, deadline }) => void put.run(uid, reason, Math.floor(since), Math.ceil(deadline)),
    due: (nowSeconds) =>
      due.all(nowSeconds).map((row) => ({
        uid: text(row, "node"),
        reason: word(row, "reason", AwaitReason),
        since: number(row, "since"),
        deadline: number(row, "deadline"),
      })),
    postpone: (uid, deadline) => void postpone.run(Math.ceil(deadline), uid),
    reported: (uid) => void reported.run(uid),
    remove(uid) {
      const row = remove.get(uid);
      return row !== undefined && number(row, "is_reported") === 1;
    },
  };
}
