import { sql } from "kysely";
import type { Executor } from "./database.ts";

/** Rows by which a node may exceed its limit before they are dropped in bulk. */
const SLACK = 500;

/**
 * Amounts added to parts of tables since their totals were last counted, because counting is slow. Kept beside the database: what a
 * transaction that is rolled back added only makes the next count come earlier or later.
 */
export class Uncounted {
  readonly #added = new Map<string, number>();

  /** Adds to a part. Reports whether its total is to be counted: at first, and whenever `slack` was added since. */
  isDue(part: string, added: number, slack: number): boolean {
    const since = (this.#added.get(part) ?? slack) + added;
    const isDue = since >= slack;
    this.#added.set(part, isDue ? 0 : since);
    return isDue;
  }
}

/** Returns a function that drops the oldest rows of a node beyond `most`, so that it cannot displace rows of others. */
export function trimmer(
  db: Executor,
  uncounted: Uncounted,
  table: "events" | "audits",
  most: number,
): (node: string, added: number) => Promise<void> {
  return async (node, added) => {
    if (!uncounted.isDue(`${table} ${node}`, added, SLACK)) return;
    const ofNode = sql`from ${sql.table(table)} where origin = 'node' and node_id = ${node}`;
    const { rows } = await sql<{ readonly total: number }>`select count(*) as total ${ofNode}`.execute(db);
    const over = (rows[0]?.total ?? 0) - most;
    if (over <= 0) return;
    await sql`delete from ${sql.table(table)} where seq in (select seq ${ofNode} order by seq limit ${over})`.execute(
      db,
    );
  };
}

/** Column that parts a table, and its values. */
interface Parts {
  readonly column: string;
  readonly values: readonly string[];
}

const ORIGINS: Parts = { column: "origin", values: ["control-plane", "node"] };

/** Returns a function that drops the oldest rows beyond `most` of each part. Counts rows, because `seq` includes dropped ones. */
export function pruner(
  db: Executor,
  table: "events" | "audits" | "org_audits",
  most: number,
  { column, values }: Parts = ORIGINS,
): () => Promise<void> {
  return async () => {
    for (const value of values) {
      const ofPart = sql`${sql.table(table)} where ${sql.ref(column)} = ${value}`;
      await sql`delete from ${ofPart} and seq <= (
        select seq from ${ofPart} order by seq desc limit 1 offset ${most})`.execute(db);
    }
  };
}
