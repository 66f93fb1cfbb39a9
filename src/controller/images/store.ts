import type { Selectable } from "kysely";
import { defined } from "../../lib/defined.ts";
import type { Executor } from "../store/database.ts";
import type { ImageRecord, ImageRecords } from "./records.ts";

/** Records of virtual machines' images; deleted with their node. */
export type ImageStore = ImageRecords;

type ImageTables = {
  readonly images: {
    readonly node: string;
    readonly id: string;
    readonly display_name: string;
    readonly description: string | null;
    readonly location: string;
    readonly os: string;
  };
};

export function imageStore(executor: Executor): ImageStore {
  const db = executor.$extendTables<ImageTables>();
  return {
    async ofNode(node) {
      const rows = await db
        .selectFrom("images")
        .selectAll()
        .where("node", "=", node)
        .orderBy("display_name")
        .orderBy("id")
        .execute();
      return rows.map(read);
    },
    async get(node, id) {
      const row = await db
        .selectFrom("images")
        .selectAll()
        .where("node", "=", node)
        .where("id", "=", id)
        .executeTakeFirst();
      return row === undefined ? undefined : read(row);
    },
    async put(node, { id, displayName, description, location, os }) {
      const row = { display_name: displayName, description: description ?? null, location, os };
      await db
        .insertInto("images")
        .values({ node, id, ...row })
        .onConflict((conflict) => conflict.columns(["node", "id"]).doUpdateSet(row))
        .execute();
    },
    async remove(node, id) {
      await db.deleteFrom("images").where("node", "=", node).where("id", "=", id).execute();
    },
  };
}

function read(row: Selectable<ImageTables["images"]>): ImageRecord {
  return {
    id: row.id,
    displayName: row.display_name,
    ...defined({ description: row.description ?? undefined }),
    location: row.location,
    os: row.os,
  };
}
