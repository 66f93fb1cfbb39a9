import type { DatabaseSync } from "node:sqlite";
import { HISTORY_SECONDS } from "../events/store.ts";
import { text } from "../store/rows.ts";
import type { SentTrigger } from "./records.ts";

/** Node of each sent trigger, so that only this node can deliver its result. Stores no bodies or output. */
export interface TriggerStore {
  add(
    trigger: { readonly id: string; readonly node: string; readonly event: string; readonly user: string },
    at: number,
  ): void;
  /** Returns a trigger that was sent to this node. */
  get(node: string, id: string): SentTrigger | undefined;
  nodeOf(id: string): string | undefined;
  /** Stores the latest outcome, `ok` or an error code: a reboot is answered first and reported after it completes. */
  settle(id: string, outcome: string): void;
  prune(nowSeconds: number): void;
}

export function triggerStore(sql: DatabaseSync): TriggerStore {
  const add = sql.prepare("INSERT INTO triggers VALUES (?, ?, ?, ?, ?, NULL)");
  const get = sql.prepare("SELECT * FROM triggers WHERE node = ? AND id = ?");
  const nodeOf = sql.prepare("SELECT node FROM triggers WHERE id = ?");
  const settle = sql.prepare("UPDATE triggers SET outcome = ? WHERE id = ?");
  const prune = sql.prepare("DELETE FROM triggers WHERE sent_at < ?");
  const pruneMany = sql.prepare(
    "DELETE FROM triggers WHERE rowid IN (SELECT rowid FROM triggers ORDER BY sent_at DESC LIMIT -1 OFFSET 200000)",
  );
  return {
    add: ({ id, node, event, user }, at) => void add.run(id, node, event, user, Math.floor(at)),
    get(node, id) {
      const row = get.get(node, id);
      if (row === undefined) return undefined;
      const outcome = row["outcome"] === null ? undefined : text(row, "outcome");
      return { id, event: text(row, "event"), user: text(row, "user"), sentAt: Number(row["sent_at"]), outcome };
    },
    nodeOf(id) {
      const row = nodeOf.get(id);
      return row === undefined ? undefined : text(row, "node");
    },
    settle: (id, outcome) => void settle.run(outcome, id),
    prune(nowSeconds) {
      prune.run(Math.floor(nowSeconds - HISTORY_SECONDS));
      pruneMany.run();
    },
  };
}
