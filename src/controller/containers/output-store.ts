import type { DatabaseSync } from "node:sqlite";
import type { ContainerOutput } from "../../protocol/documents/telemetry.ts";
import { OUTPUT_SECONDS } from "./kept-output.ts";
import { number, text, type Row } from "../store/rows.ts";
import type { ContainerOutputSearch } from "./records.ts";

/** Output of containers with `saveOutput`: 30 days, and at most 64 MB of text per node and 2 GB in total. */
export interface ContainerOutputStore extends ContainerOutputSearch {
  /** Stores records of a node, and drops its oldest beyond its limit. */
  add(node: string, records: readonly ContainerOutput[]): void;
  prune(nowSeconds: number): void;
}

const MAX_CHARS_PER_NODE = 64_000_000;
const CHARS = 2_000_000_000;
/** Characters by which a node may exceed its limit before its oldest are dropped in bulk. */
const SLACK = 1_000_000;

export function containerOutputStore(sql: DatabaseSync): ContainerOutputStore {
  const add = sql.prepare(
    "INSERT INTO container_output (node, container, name, run, stream, at, text, chars) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
  );
  const find = sql.prepare(
    `SELECT * FROM (
       SELECT * FROM container_output WHERE node = :node AND at >= :from AND at <= :to
       AND (:container IS NULL OR container = :container OR name = :container) ORDER BY at DESC, seq DESC LIMIT :limit
     ) ORDER BY at, seq`,
  );
  const total = sql.prepare("SELECT sum(chars) AS chars FROM container_output WHERE node = ?");
  const all = sql.prepare("SELECT sum(chars) AS chars FROM container_output");
  // Selects the oldest rows up to a number of characters.
  const OLDEST = (where: string): string =>
    `DELETE FROM container_output WHERE seq IN (SELECT seq FROM (
       SELECT seq, sum(chars) OVER (ORDER BY seq) - chars AS before FROM container_output ${where}) WHERE before < ?)`;
  const dropOfNode = sql.prepare(OLDEST("WHERE node = ?"));
  const dropOfAll = sql.prepare(OLDEST(""));
  const pruneOld = sql.prepare("DELETE FROM container_output WHERE at < ?");
  // Characters added since a node's total was last counted.
  const uncounted = new Map<string, number>();

  return {
    add(node, records) {
      let added = 0;
      for (const { container, name, run, stream, at, text: content } of records) {
        add.run(node, container, name, run, stream, at, content, content.length);
        added += content.length;
      }
      const since = (uncounted.get(node) ?? SLACK) + added;
      uncounted.set(node, since < SLACK ? since : 0);
      if (since < SLACK) return;
      const over = Number(total.get(node)?.["chars"] ?? 0) - MAX_CHARS_PER_NODE;
      if (over > 0) dropOfNode.run(node, over);
    },
    find: (node, { container, from, to, limit }) =>
      find.all({ node, container: container ?? null, from: from * 1000, to: to * 1000 + 999, limit }).map(read),
    prune(nowSeconds) {
      pruneOld.run(Math.floor((nowSeconds - OUTPUT_SECONDS) * 1000));
      const over = Number(all.get()?.["chars"] ?? 0) - CHARS;
      if (over > 0) dropOfAll.run(over);
    },
  };
}

function read(row: Row): ContainerOutput {
  return {
    container: text(row, "container"),
    name: text(row, "name"),
    run: text(row, "run"),
    stream: text(row, "stream") === "stderr" ? "stderr" : "stdout",
    at: number(row, "at"),
    text: text(row, "text"),
  };
}
