import type { DatabaseSync } from "node:sqlite";
import { NodeState, NodeType } from "../../../protocol/values/values.ts";
import { stateOf } from "../../nodes/ip-lock.ts";
import type { MeshRecord } from "./mesh-node.ts";
import { maybeText, text, word, type Row } from "../../store/rows.ts";

/** Fields of a node that decide which nodes share data; the sections as JSON text. */
export type MeshRow = Omit<MeshRecord, "gateway" | "connectors"> & {
  readonly gateway: string | undefined;
  readonly connectors: string | undefined;
};

/** Reads these fields without the rest of a node's row. */
export interface MeshStore {
  all(): readonly MeshRow[];
  get(uid: string): MeshRow | undefined;
}

const COLUMNS = `uid, name, fqdn, domain, type, state, cluster, overlay, unauthorized_ip,
  config -> '$.gateway' AS gateway, config -> '$.connectors' AS connectors`;

export function meshStore(sql: DatabaseSync): MeshStore {
  const all = sql.prepare(`SELECT ${COLUMNS} FROM nodes ORDER BY uid`);
  const one = sql.prepare(`SELECT ${COLUMNS} FROM nodes WHERE uid = ?`);
  return {
    all: () => all.all().map(read),
    get(uid) {
      const row = one.get(uid);
      return row === undefined ? undefined : read(row);
    },
  };
}

function read(row: Row): MeshRow {
  return {
    uid: text(row, "uid"),
    name: text(row, "name"),
    fqdn: text(row, "fqdn"),
    domain: text(row, "domain"),
    type: word(row, "type", NodeType),
    state: stateOf({ state: word(row, "state", NodeState), unauthorizedIp: maybeText(row, "unauthorized_ip") }),
    cluster: maybeText(row, "cluster"),
    key: text(row, "overlay"),
    gateway: maybeText(row, "gateway"),
    connectors: maybeText(row, "connectors"),
  };
}
