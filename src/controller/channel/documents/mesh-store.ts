import { sql, type Selectable } from "kysely";
import { NodeState, NodeType } from "../../../protocol/values/values.ts";
import { stateOf } from "../../nodes/ip-lock.ts";
import type { MeshRecord } from "./mesh-node.ts";
import { word } from "../../store/columns.ts";
import { engineOf, type Executor } from "../../store/database.ts";

/** Fields of a node that decide which nodes share data; the sections as JSON text. */
export type MeshRow = Omit<MeshRecord, "gateway" | "connectors"> & {
  readonly gateway: string | undefined;
  readonly connectors: string | undefined;
};

/** Reads these fields without the rest of a node's row. */
export interface MeshStore {
  all(): Promise<readonly MeshRow[]>;
  get(uid: string): Promise<MeshRow | undefined>;
}

type MeshTables = {
  readonly nodes: {
    readonly uid: string;
    readonly name: string;
    readonly fqdn: string;
    readonly domain: string;
    readonly type: string;
    readonly state: string;
    readonly cluster: string | null;
    readonly overlay: string;
    readonly unauthorized_ip: string | null;
    readonly config: string;
  };
};

export function meshStore(executor: Executor): MeshStore {
  const engine = engineOf(executor);
  const config = sql.ref("config");
  const rows = executor
    .$extendTables<MeshTables>()
    .selectFrom("nodes")
    .select(["uid", "name", "fqdn", "domain", "type", "state", "cluster", "overlay", "unauthorized_ip"])
    .select([
      engine.jsonField(config, "gateway").as("gateway"),
      engine.jsonField(config, "connectors").as("connectors"),
    ]);
  return {
    all: async () => (await rows.orderBy("uid").execute()).map(read),
    async get(uid) {
      const row = await rows.where("uid", "=", uid).executeTakeFirst();
      return row === undefined ? undefined : read(row);
    },
  };
}

function read(
  row: Omit<Selectable<MeshTables["nodes"]>, "config"> & {
    readonly gateway: string | null;
    readonly connectors: string | null;
  },
): MeshRow {
  return {
    uid: row.uid,
    name: row.name,
    fqdn: row.fqdn,
    domain: row.domain,
    type: word(row, "type", NodeType),
    state: stateOf({ state: word(row, "state", NodeState), unauthorizedIp: row.unauthorized_ip ?? undefined }),
    cluster: row.cluster ?? undefined,
    key: row.overlay,
    gateway: row.gateway ?? undefined,
    connectors: row.connectors ?? undefined,
  };
}
