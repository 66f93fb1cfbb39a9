import type { DatabaseSync } from "node:sqlite";
import { z } from "zod";
import { HopDetails, type GatewayDetails } from "../../protocol/documents/telemetry.ts";
import { DETAILS_SECONDS, MAX_DETAILS_FOUND } from "./gateway-details.ts";
import { maybeJson, number, text, type Row } from "../store/rows.ts";
import { defined } from "../../lib/defined.ts";
import type { GatewayDetailsSearch } from "./records.ts";

/** Round trips to gateways, as reported by the nodes that dialed them, including deleted ones: 90 days, and at most 4,000,000 records. */
export interface GatewayDetailsStore extends GatewayDetailsSearch {
  /** Stores records of a node, replacing the same interval, and drops its oldest beyond its limit of 300,000. */
  add(node: { readonly uid: string; readonly name: string }, records: readonly GatewayDetails[]): void;
  prune(nowSeconds: number): void;
}

/** Limit of rows per node: two tunnels give 259,200 records in 90 days. */
const ROWS_PER_NODE = 300_000;
const ROWS = 4_000_000;
/** Rows by which a node may exceed its limit before they are dropped in bulk; counting and dropping are slow. */
const SLACK = 5000;

const Hops = z.array(HopDetails);

export function gatewayDetailsStore(
  sql: DatabaseSync,
  uidOf: (name: string) => string | undefined,
): GatewayDetailsStore {
  const add = sql.prepare("INSERT OR REPLACE INTO gateway_details VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  const ofNode = sql.prepare(
    `SELECT peer AS label, * FROM gateway_details WHERE node = :node AND t >= :from AND t <= :to
     UNION ALL SELECT name AS label, * FROM gateway_details WHERE peer_uid = :node AND t >= :from AND t <= :to
     ORDER BY t, label, path LIMIT ${MAX_DETAILS_FOUND + 1}`,
  );
  const count = sql.prepare("SELECT count(*) AS rows FROM gateway_details WHERE node = ?");
  const dropOfNode = sql.prepare(
    `DELETE FROM gateway_details WHERE (node, t, peer, path) IN
     (SELECT node, t, peer, path FROM gateway_details WHERE node = ? ORDER BY t LIMIT ?)`,
  );
  const pruneOld = sql.prepare("DELETE FROM gateway_details WHERE t < ?");
  const pruneMany = sql.prepare(
    `DELETE FROM gateway_details WHERE t <= (SELECT t FROM gateway_details ORDER BY t DESC LIMIT 1 OFFSET ${ROWS})`,
  );
  // Rows added since a node's rows were last counted.
  const uncounted = new Map<string, number>();

  function trim(node: string, added: number): void {
    const since = (uncounted.get(node) ?? SLACK) + added;
    uncounted.set(node, since);
    if (since < SLACK) return;
    uncounted.set(node, 0);
    const over = Number(count.get(node)?.["rows"] ?? 0) - ROWS_PER_NODE;
    if (over > 0) dropOfNode.run(node, over);
  }

  return {
    add({ uid, name }, records) {
      for (const { time, node, path = "", numRtt, minRtt, maxRtt, meanRtt, stdRtt, hops } of records) {
        const list = hops === undefined ? null : JSON.stringify(hops);
        add.run(uid, name, node, uidOf(node) ?? "", path, time, numRtt, minRtt, maxRtt, meanRtt, stdRtt, list);
      }
      trim(uid, records.length);
    },
    find(node, from, to) {
      const rows = ofNode.all({ node, from: from * 1000, to: to * 1000 + 999 });
      return rows.length > MAX_DETAILS_FOUND ? undefined : rows.map(read);
    },
    prune(nowSeconds) {
      pruneOld.run(Math.floor((nowSeconds - DETAILS_SECONDS) * 1000));
      pruneMany.run();
    },
  };
}

function read(row: Row): GatewayDetails {
  const [path, hops] = [text(row, "path"), maybeJson(row, "hops", Hops)];
  return {
    time: number(row, "t"),
    node: text(row, "label"),
    ...(path === "" ? {} : { path }),
    minRtt: number(row, "min_rtt"),
    maxRtt: number(row, "max_rtt"),
    meanRtt: number(row, "mean_rtt"),
    stdRtt: number(row, "std_rtt"),
    numRtt: number(row, "num_rtt"),
    ...defined({ hops }),
  };
}
