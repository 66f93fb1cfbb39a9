import type { Generated, Selectable } from "kysely";
import { Config } from "../../protocol/documents/documents.ts";
import { Tags } from "../../protocol/values/values.ts";
import { json } from "../store/columns.ts";
import type { Executor } from "../store/database.ts";
import type { ClusterRecord } from "./records.ts";

/** Clusters; membership is stored with the nodes. */
export interface ClusterStore {
  all(): Promise<readonly ClusterRecord[]>;
  get(fqdn: string): Promise<ClusterRecord | undefined>;
  add(cluster: Pick<ClusterRecord, "fqdn" | "name" | "domain" | "createdAt">): Promise<void>;
  setConfig(fqdn: string, config: Config): Promise<void>;
  setTags(fqdn: string, tags: Readonly<Record<string, string>>): Promise<void>;
  remove(fqdn: string): Promise<void>;
}

type ClusterTables = {
  readonly clusters: {
    readonly fqdn: string;
    readonly name: string;
    readonly domain: string;
    readonly created_at: number;
    readonly tags: Generated<string>;
    readonly config: Generated<string>;
  };
  readonly nodes: { readonly uid: string; readonly cluster: string | null };
};

export function clusterStore(executor: Executor): ClusterStore {
  const db = executor.$extendTables<ClusterTables>();
  const memberships = db.selectFrom("nodes").select(["uid", "cluster"]).orderBy("uid");
  return {
    async all() {
      const rows = await db.selectFrom("clusters").selectAll().orderBy("fqdn").execute();
      const members = await memberships.where("cluster", "is not", null).execute();
      const byCluster = Map.groupBy(members, ({ cluster }) => cluster ?? "");
      return rows.map((row) => read(row, byCluster.get(row.fqdn) ?? []));
    },
    async get(fqdn) {
      const row = await db.selectFrom("clusters").selectAll().where("fqdn", "=", fqdn).executeTakeFirst();
      if (row === undefined) return undefined;
      return read(row, await memberships.where("cluster", "=", fqdn).execute());
    },
    async add({ fqdn, name, domain, createdAt }) {
      await db.insertInto("clusters").values({ fqdn, name, domain, created_at: createdAt }).execute();
    },
    async setConfig(fqdn, config) {
      await db
        .updateTable("clusters")
        .set({ config: JSON.stringify(config) })
        .where("fqdn", "=", fqdn)
        .execute();
    },
    async setTags(fqdn, tags) {
      await db
        .updateTable("clusters")
        .set({ tags: JSON.stringify(tags) })
        .where("fqdn", "=", fqdn)
        .execute();
    },
    async remove(fqdn) {
      await db.deleteFrom("clusters").where("fqdn", "=", fqdn).execute();
    },
  };
}

function read(row: Selectable<ClusterTables["clusters"]>, members: readonly { readonly uid: string }[]): ClusterRecord {
  return {
    fqdn: row.fqdn,
    name: row.name,
    domain: row.domain,
    createdAt: row.created_at,
    tags: json(row, "tags", Tags),
    config: json(row, "config", Config),
    members: members.map(({ uid }) => uid),
  };
}
