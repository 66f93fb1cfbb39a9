import type { DatabaseSync } from "node:sqlite";

/** Rows over its share that a node may have until they are dropped together. */
const SLACK = 500;

/** Makes what drops a node's oldest rows beyond `most`, so that no node can push out what others sent. */
export function trimmer(
  sql: DatabaseSync,
  table: "events" | "audits",
  column: "node_id",
  most: number,
): (node: string) => void {
  const count = sql.prepare(`SELECT count(*) AS rows FROM ${table} WHERE ${column} = ?`);
  const drop = sql.prepare(
    `DELETE FROM ${table} WHERE seq IN (SELECT seq FROM ${table} WHERE ${column} = ? ORDER BY seq LIMIT ?)`,
  );
  return (node) => {
    const over = Number(count.get(node)?.["rows"] ?? 0) - most;
    if (over > SLACK) drop.run(node, over);
  };
}
