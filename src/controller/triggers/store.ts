import { HISTORY_SECONDS } from "../events/store.ts";
import type { Executor } from "../store/database.ts";
import { statement } from "../store/statement.ts";
import type { SentTrigger } from "./records.ts";

/** Node of each sent trigger, so that only this node can deliver its result. Stores no bodies or output. */
export interface TriggerStore {
  add(
    trigger: { readonly id: string; readonly node: string; readonly event: string; readonly user: string },
    at: number,
  ): Promise<void>;
  /** Returns a trigger that was sent to this node. */
  get(node: string, id: string): Promise<SentTrigger | undefined>;
  nodeOf(id: string): Promise<string | undefined>;
  /** Stores the latest outcome, `ok` or an error code: a reboot is answered first and reported after it completes. */
  settle(id: string, outcome: string): Promise<void>;
  prune(nowSeconds: number): Promise<void>;
}

type TriggerTables = {
  readonly triggers: {
    readonly id: string;
    readonly node: string;
    readonly event: string;
    readonly user: string;
    readonly sent_at: number;
    readonly outcome: string | null;
  };
};

const ADD = statement<Omit<TriggerTables["triggers"], "outcome">>()((db, value) =>
  db
    .$extendTables<TriggerTables>()
    .insertInto("triggers")
    .values({
      id: value("id"),
      node: value("node"),
      event: value("event"),
      user: value("user"),
      sent_at: value("sent_at"),
    }),
);
const NODE_OF = statement<{ readonly id: string }>()((db, value) =>
  db.$extendTables<TriggerTables>().selectFrom("triggers").select("node").where("id", "=", value("id")),
);
const SETTLE = statement<{ readonly id: string; readonly outcome: string }>()((db, value) =>
  db
    .$extendTables<TriggerTables>()
    .updateTable("triggers")
    .set({ outcome: value("outcome") })
    .where("id", "=", value("id")),
);

const ROWS = 200_000;
/** SQLite takes an offset only with a limit. */
const ALL = Number.MAX_SAFE_INTEGER;

export function triggerStore(executor: Executor): TriggerStore {
  const db = executor.$extendTables<TriggerTables>();
  return {
    async add({ id, node, event, user }, at) {
      await ADD(executor, { id, node, event, user, sent_at: Math.floor(at) });
    },
    async get(node, id) {
      const row = await db
        .selectFrom("triggers")
        .select(["event", "user", "sent_at", "outcome"])
        .where("node", "=", node)
        .where("id", "=", id)
        .executeTakeFirst();
      if (row === undefined) return undefined;
      return { id, event: row.event, user: row.user, sentAt: row.sent_at, outcome: row.outcome ?? undefined };
    },
    nodeOf: async (id) => (await NODE_OF(executor, { id })).rows[0]?.node,
    async settle(id, outcome) {
      await SETTLE(executor, { id, outcome });
    },
    async prune(nowSeconds) {
      await db
        .deleteFrom("triggers")
        .where("sent_at", "<", Math.floor(nowSeconds - HISTORY_SECONDS))
        .execute();
      const beyond = db.selectFrom("triggers").select("id").orderBy("sent_at", "desc").limit(ALL).offset(ROWS);
      await db.deleteFrom("triggers").where("id", "in", beyond).execute();
    },
  };
}
