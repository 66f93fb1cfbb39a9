import type { DatabaseSync } from "node:sqlite";

/** Rows by which a node may exceed its limit before they are dropped in bulk. */
const SLACK = 500;

/** Returns a function that drops the oldest rows of a node beyond `most`, so that it cannot displace rows of others. */
export function trimmer(
  sql: DatabaseSync,
  table: "events" | "audits",
  most: number,
): (node: string, added: number) => void {
  const rows = `FROM ${table} WHERE origin = 'node' AND node_id = ?`;
  const count = sql.prepare(`SELECT count(*) AS rows ${rows}`);
  const drop = sql.prepare(`DELETE FROM ${table} WHERE seq IN (SELECT seq ${rows} ORDER BY seq LIMIT ?)`);
  // Rows added since a node's rows were last counted, because counting is slow.
  const uncounted = new Map<string, number>();
  return (node, added) => {
    const since = (uncounted.get(node) ?? SLACK) + added;
    uncounted.set(node, since);
    if (since < SLACK) return;
    uncounted.set(node, 0);
    const over = Number(count.get(node)?.["rows"] ?? 0) - most;
    if (over > 0) drop.run(node, over);
  };
}

/** Returns a function that drops the oldest rows beyond `most` of each origin. Counts rows, because `seq` includes dropped ones. */
export function pruner(sql: DatabaseSync, table: "events" | "audits", most: number): () => void {
  const drop = sql.prepare(
    `DELETE FROM ${table} WHERE origin = :origin
     AND seq <= (SELECT seq FROM ${table} WHERE origin = :origin ORDER BY seq DESC LIMIT 1 OFFSET :most)`,
  );
  return () => {
    for (const origin of ["control-plane", "node"]) drop.run({ origin, most });
  };
}
