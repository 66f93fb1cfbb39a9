import { Tags as StoredTags } from "../../protocol/values/values.ts";
import type { Tags } from "../access/policies/conditions.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { json, maybeJson } from "../store/columns.ts";
import type { Executor } from "../store/database.ts";
import { statement } from "../store/statement.ts";
import { effectiveTags } from "./fields.ts";

/** Tags of nodes and clusters by resource name, as conditions of policies see them: a node has those of its cluster, too, its own first. */
export interface TagStore {
  /** Returns undefined for a resource that does not exist, or has no tags by its kind. */
  of(resource: string): Promise<Tags | undefined>;
  all(): Promise<ReadonlyMap<string, Tags>>;
}

type TagTables = {
  readonly nodes: { readonly uid: string; readonly cluster: string | null; readonly tags: string };
  readonly clusters: { readonly fqdn: string; readonly tags: string };
};
type NodeTags = { readonly tags: string; readonly inherited: string | null };

const OF_NODE = statement<{ readonly uid: string }>()((db, value) =>
  db
    .$extendTables<TagTables>()
    .selectFrom("nodes")
    .leftJoin("clusters", "clusters.fqdn", "nodes.cluster")
    .select(["nodes.tags", "clusters.tags as inherited"])
    .where("nodes.uid", "=", value("uid")),
);
const OF_CLUSTER = statement<{ readonly fqdn: string }>()((db, value) =>
  db.$extendTables<TagTables>().selectFrom("clusters").select("tags").where("fqdn", "=", value("fqdn")),
);

export function tagStore(executor: Executor): TagStore {
  const db = executor.$extendTables<TagTables>();
  return {
    async of(resource) {
      const uid = after(tgrn.node(""), resource);
      if (uid !== undefined) {
        const [row] = (await OF_NODE(executor, { uid })).rows;
        return row === undefined ? undefined : tagsIn(row);
      }
      const fqdn = after(tgrn.cluster(""), resource);
      if (fqdn === undefined) return undefined;
      const [row] = (await OF_CLUSTER(executor, { fqdn })).rows;
      return row === undefined ? undefined : json(row, "tags", StoredTags);
    },
    async all() {
      const nodes = await db
        .selectFrom("nodes")
        .leftJoin("clusters", "clusters.fqdn", "nodes.cluster")
        .select(["nodes.uid", "nodes.tags", "clusters.tags as inherited"])
        .execute();
      const clusters = await db.selectFrom("clusters").select(["fqdn", "tags"]).execute();
      return new Map([
        ...nodes.map((row) => [tgrn.node(row.uid), tagsIn(row)] as const),
        ...clusters.map((row) => [tgrn.cluster(row.fqdn), json(row, "tags", StoredTags)] as const),
      ]);
    },
  };
}

/** Returns the tags that count of a node's row with its own tags and those of its cluster. */
export const tagsIn = (row: NodeTags): Tags =>
  effectiveTags({ tags: json(row, "tags", StoredTags), inheritedTags: maybeJson(row, "inherited", StoredTags) });

const after = (prefix: string, text: string): string | undefined =>
  text.startsWith(prefix) ? text.slice(prefix.length) : undefined;
