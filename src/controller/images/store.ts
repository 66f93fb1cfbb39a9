import type { DatabaseSync } from "node:sqlite";
import { maybeText, text, type Row } from "../store/rows.ts";
import { defined } from "../../lib/defined.ts";
import type { ImageRecord, ImageRecords } from "./records.ts";

/** Records of virtual machines' images; deleted with their node. */
export type ImageStore = ImageRecords;

export function imageStore(sql: DatabaseSync): ImageStore {
  const ofNode = sql.prepare("SELECT * FROM images WHERE node = ? ORDER BY display_name, id");
  const one = sql.prepare("SELECT * FROM images WHERE node = ? AND id = ?");
  const put = sql.prepare("INSERT OR REPLACE INTO images VALUES (?, ?, ?, ?, ?, ?)");
  const remove = sql.prepare("DELETE FROM images WHERE node = ? AND id = ?");
  return {
    ofNode: (node) => ofNode.all(node).map(read),
    get(node, id) {
      const row = one.get(node, id);
      return row === undefined ? undefined : read(row);
    },
    put: (node, { id, displayName, description, location, os }) =>
      void put.run(node, id, displayName, description ?? null, location, os),
    remove: (node, id) => void remove.run(node, id),
  };
}

function read(row: Row): ImageRecord {
  const description = maybeText(row, "description");
  return {
    id: text(row, "id"),
    displayName: text(row, "display_name"),
    ...defined({ description }),
    location: text(row, "location"),
    os: text(row, "os"),
  };
}
