import { sql, type Selectable } from "kysely";
import { NodeState, NodeType } from "../../../protocol/values/values.ts";
import { stateOf } from "../../nodes/ip-lock.ts";
import type { MeshRecord } from "./mesh-node.ts";
import { word } from "../../store/columns.ts";
import { engineOf, type Executor } from "../../store/database.ts";
import { statement } from "../../store/statement.ts";

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

const rowsOf = (db: Executor) => {
  const engine = engineOf(db);
  const config = sql.ref("config");
  return db
    .$extendTables<MeshTables>()
    .selectFrom("nodes")
    .select(["uid", "name", "fqdn", "domain", "type", "state", "cluster", "overlay", "unauthorized_ip"])
    .select([
      engine.jsonField(config, "gateway").as("gateway"),
      engine.jsonField(config, "connectors").as("connectors"),
    ]);
};
const GET = statement<{ readonly uid: string }>()((db, value) => rowsOf(db).where("uid", "=", value("uid")));

export function meshStore(executor: Executor): MeshStore {
  return {
    all: async () => (await rowsOf(executor).orderBy("uid").execute()).map(read),
    async get(uid) {
      const [row] = (await GET(executor, { uid })).rows;
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
