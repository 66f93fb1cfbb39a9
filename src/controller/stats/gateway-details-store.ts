import { sql, type Selectable } from "kysely";
import { z } from "zod";
import { HopDetails, type GatewayDetails } from "../../protocol/documents/telemetry.ts";
import { DETAILS_SECONDS, MAX_DETAILS_FOUND } from "./gateway-details.ts";
import { defined } from "../../lib/defined.ts";
import { maybeJson, storable } from "../store/columns.ts";
import type { Executor } from "../store/database.ts";
import { statement } from "../store/statement.ts";
import type { Uncounted } from "../store/trimmer.ts";
import type { UidsOf } from "./flow-store.ts";
import type { GatewayDetailsSearch } from "./records.ts";

/** Round trips to gateways, as reported by the nodes that dialed them, including deleted ones: 90 days, and at most 4,000,000 records. */
export interface GatewayDetailsStore extends GatewayDetailsSearch {
  /** Stores records of a node, replacing the same interval, and drops its oldest beyond its limit of 300,000. */
  add(node: { readonly uid: string; readonly name: string }, records: readonly GatewayDetails[]): Promise<void>;
  prune(nowSeconds: number): Promise<void>;
}

/** Limit of rows per node: two tunnels give 259,200 records in 90 days. */
const ROWS_PER_NODE = 300_000;
const ROWS = 4_000_000;
/** Rows by which a node may exceed its limit before they are dropped in bulk; counting and dropping are slow. */
const SLACK = 5000;

const Hops = z.array(HopDetails);

type DetailsTables = {
  readonly gateway_details: {
    readonly node: string;
    readonly name: string;
    readonly peer: string;
    readonly peer_uid: string;
    readonly path: string;
    readonly t: number;
    readonly num_rtt: number;
    readonly min_rtt: number;
    readonly max_rtt: number;
    readonly mean_rtt: number;
    readonly std_rtt: number;
    readonly hops: string | null;
  };
};
type DetailsRow = Selectable<DetailsTables["gateway_details"]>;

const PUT = statement<DetailsRow>()((db, value) => {
  const content = {
    name: value("name"),
    peer_uid: value("peer_uid"),
    num_rtt: value("num_rtt"),
    min_rtt: value("min_rtt"),
    max_rtt: value("max_rtt"),
    mean_rtt: value("mean_rtt"),
    std_rtt: value("std_rtt"),
    hops: value("hops"),
  };
  return db
    .$extendTables<DetailsTables>()
    .insertInto("gateway_details")
    .values({ node: value("node"), t: value("t"), peer: value("peer"), path: value("path"), ...content })
    .onConflict((conflict) => conflict.columns(["node", "t", "peer", "path"]).doUpdateSet(content));
});

/** `uidsOf` maps node names to UIDs. */
export function gatewayDetailsStore(executor: Executor, uncounted: Uncounted, uidsOf: UidsOf): GatewayDetailsStore {
  const db = executor.$extendTables<DetailsTables>();
  const trim = async (node: string): Promise<void> => {
    const count = await db
      .selectFrom("gateway_details")
      .select((eb) => eb.fn.countAll<number>().as("total"))
      .where("node", "=", node)
      .executeTakeFirst();
    const over = (count?.total ?? 0) - ROWS_PER_NODE;
    if (over <= 0) return;
    await sql`delete from gateway_details where (node, t, peer, path) in (
      select node, t, peer, path from gateway_details where node = ${node} order by t limit ${over})`.execute(db);
  };
  return {
    async add({ uid, name }, records) {
      const uids = await uidsOf([...new Set(records.map(({ node }) => node))]);
      for (const { time, node, path = "", numRtt, minRtt, maxRtt, meanRtt, stdRtt, hops } of records) {
        await PUT(executor, {
          node: uid,
          name,
          peer: node,
          peer_uid: uids.get(node) ?? "",
          path: storable(path),
          t: time,
          num_rtt: numRtt,
          min_rtt: minRtt,
          max_rtt: maxRtt,
          mean_rtt: meanRtt,
          std_rtt: stdRtt,
          hops: hops === undefined ? null : JSON.stringify(hops),
        });
      }
      if (uncounted.isDue(`gateway_details ${uid}`, records.length, SLACK)) await trim(uid);
    },
    async find(node, from, to) {
      const within = db
        .selectFrom("gateway_details")
        .selectAll()
        .where("t", ">=", Math.ceil(from * 1000))
        .where("t", "<=", Math.floor(to * 1000 + 999));
      const rows = await within
        .select("peer as label")
        .where("node", "=", node)
        .unionAll(within.select("name as label").where("peer_uid", "=", node))
        .orderBy("t")
        .orderBy("label")
        .orderBy("path")
        .limit(MAX_DETAILS_FOUND + 1)
        .execute();
      return rows.length > MAX_DETAILS_FOUND ? undefined : rows.map(read);
    },
    async prune(nowSeconds) {
      await db
        .deleteFrom("gateway_details")
        .where("t", "<", Math.floor((nowSeconds - DETAILS_SECONDS) * 1000))
        .execute();
      const beyond = db.selectFrom("gateway_details").select("t").orderBy("t", "desc").limit(1).offset(ROWS);
      await db.deleteFrom("gateway_details").where("t", "<=", beyond).execute();
    },
  };
}

function read(row: DetailsRow & { readonly label: string }): GatewayDetails {
  return {
    time: row.t,
    node: row.label,
    ...(row.path === "" ? {} : { path: row.path }),
    minRtt: row.min_rtt,
    maxRtt: row.max_rtt,
    meanRtt: row.mean_rtt,
    stdRtt: row.std_rtt,
    numRtt: row.num_rtt,
    ...defined({ hops: maybeJson(row, "hops", Hops) }),
  };
}
