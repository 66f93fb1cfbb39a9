import type { DatabaseSync } from "node:sqlite";
import { Config } from "../../protocol/documents/documents.ts";
import { Tags } from "../../protocol/values/values.ts";
import { json, number, text, type Row } from "../store/rows.ts";
import type { ClusterRecord } from "./records.ts";

/** Clusters; membership is stored with the nodes. */
export interface ClusterStore {
  all(): readonly ClusterRecord[];
  get(fqdn: string): ClusterRecord | undefined;
  add(cluster: Pick<ClusterRecord, "fqdn" | "name" | "domain" | "createdAt">): void;
  setConfig(fqdn: string, config: Config): void;
  setTags(fqdn: string, tags: Readonly<Record<string, string>>): void;
  remove(fqdn: string): void;
}

export function clusterStore(sql: DatabaseSync): ClusterStore {
  const all = sql.prepare("SELECT * FROM clusters ORDER BY fqdn");
  const one = sql.prepare("SELECT * FROM clusters WHERE fqdn = ?");
  const members = sql.prepare("SELECT uid FROM nodes WHERE cluster = ? ORDER BY uid");
  const add = sql.prepare("INSERT INTO clusters (fqdn, name, domain, created_at) VALUES (?, ?, ?, ?)");
  const setConfig = sql.prepare("UPDATE clusters SET config = ? WHERE fqdn = ?");
  const setTags = sql.prepare("UPDATE clusters SET tags = ? WHERE fqdn = ?");
  const remove = sql.prepare("DELETE FROM clusters WHERE fqdn = ?");
  const read = (row: Row): ClusterRecord => {
    const fqdn = text(row, "fqdn");
    return {
      fqdn,
      name: text(row, "name"),
      domain: text(row, "domain"),
      createdAt: number(row, "created_at"),
      tags: json(row, "tags", Tags),
      config: json(row, "config", Config),
      members: members.all(fqdn).map((member) => text(member, "uid")),
    };
  };
  return {
    all: () => all.all().map(read),
    get(fqdn) {
      const row = one.get(fqdn);
      return row === undefined ? undefined : read(row);
    },
    add: ({ fqdn, name, domain, createdAt }) => void add.run(fqdn, name, domain, createdAt),
    setConfig: (fqdn, config) => void setConfig.run(JSON.stringify(config), fqdn),
    setTags: (fqdn, tags) => void setTags.run(JSON.stringify(tags), fqdn),
    remove: (fqdn) => void remove.run(fqdn),
  };
}
