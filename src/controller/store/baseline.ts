import { sql, type ColumnDefinitionBuilder, type Compilable, type CreateTableBuilder } from "kysely";
import type { Engine, Executor } from "./database.ts";

type ColumnType = "text" | "integer" | "real" | "bytes";

interface Column {
  readonly type: ColumnType | "serial";
  readonly isOptional?: true;
  readonly isKey?: true;
  readonly isUnique?: true;
  readonly default?: string | number;
  /** Table and column; rows go with the row that they reference, unless it is kept while they are there. */
  readonly references?: readonly [string, string, ("cascade" | "restrict")?];
}

interface Table {
  readonly name: string;
  readonly columns: Readonly<Record<string, Column>>;
  /** Primary key of several columns. */
  readonly key?: readonly string[];
  /** Whether SQLite stores the rows in their primary key. */
  readonly isKeyed?: true;
  /** Columns of each index, by the index's name. */
  readonly indexes?: Readonly<Record<string, readonly string[]>>;
}

const text = { type: "text" } as const;
const maybeText = { type: "text", isOptional: true } as const;
const uniqueText = { type: "text", isUnique: true } as const;
const textKey = { type: "text", isKey: true } as const;
const integer = { type: "integer" } as const;
const maybeInteger = { type: "integer", isOptional: true } as const;
const flag = { type: "integer", default: 0 } as const;
const real = { type: "real" } as const;
const maybeBytes = { type: "bytes", isOptional: true } as const;
const serial = { type: "serial" } as const;
const object = { type: "text", default: "{}" } as const;
const ofNode = { type: "text", references: ["nodes", "uid", "cascade"] } as const;
const origin = { type: "text", default: "node" } as const;

const TABLES: readonly Table[] = [
  { name: "meta", columns: { key: textKey, value: text } },
  { name: "key_documents", columns: { version: { type: "integer", isKey: true }, jws: text, cross_jws: maybeText } },
  {
    name: "licenses",
    columns: {
      jti: textKey,
      name: text,
      type: text,
      issued_at: integer,
      expires_at: integer,
      issued_by: text,
      consumed_at: maybeInteger,
    },
  },
  {
    name: "clusters",
    columns: { fqdn: textKey, name: text, domain: text, created_at: integer, tags: object, config: object },
  },
  {
    name: "nodes",
    columns: {
      uid: textKey,
      name: uniqueText,
      fqdn: uniqueText,
      domain: text,
      org: text,
      type: text,
      state: { type: "text", default: "ACTIVE" },
      lifecycle_state: maybeText,
      cluster: { type: "text", isOptional: true, references: ["clusters", "fqdn"] },
      tags: object,
      config: object,
      keys: text,
      auth: uniqueText,
      overlay: uniqueText,
      wireguard: uniqueText,
      device: maybeText,
      created_at: integer,
      // Unused: holds the UID.
      speed_token: uniqueText,
      last_ip: maybeText,
      last_connect: maybeInteger,
      disconnect_time: maybeInteger,
      heartbeat: maybeText,
      reported: object,
      reported_version: flag,
      trail: text,
      is_online: flag,
      confirm: maybeText,
      locked_to: maybeText,
      unauthorized_ip: maybeText,
    },
    indexes: { nodes_by_cluster: ["cluster"] },
  },
  { name: "tombstones", columns: { uid: textKey, auth_key: text, auth: text, deleted_at: integer } },
  {
    name: "documents",
    columns: {
      node: ofNode,
      name: text,
      sub: text,
      version: integer,
      hash: text,
      body: text,
      jws: maybeText,
      seal: maybeText,
    },
    key: ["node", "name", "sub"],
  },
  { name: "applied", columns: { node: ofNode, name: text, report: text }, key: ["node", "name"] },
  {
    name: "events",
    columns: {
      seq: serial,
      uid: uniqueText,
      node_id: text,
      node_name: text,
      fqdn: text,
      domain: text,
      org: text,
      event_type: text,
      level: text,
      message: text,
      state: text,
      subject: text,
      timestamp: real,
      received_time: real,
      details: text,
      origin,
    },
    indexes: {
      events_by_node: ["node_id", "timestamp"],
      events_by_time: ["timestamp"],
      events_by_receipt: ["received_time"],
      events_by_origin: ["origin", "node_id"],
    },
  },
  {
    name: "alerts",
    columns: { node_id: text, event_type: text, uid: text, node_name: text, message: text, timestamp: real },
    key: ["node_id", "event_type"],
  },
  {
    name: "audits",
    columns: { seq: serial, node_id: text, fqdn: text, category: text, value: text, timestamp: real, origin },
    indexes: {
      audits_by_node: ["node_id", "timestamp"],
      audits_by_time: ["timestamp"],
      audits_by_origin: ["origin", "node_id"],
    },
  },
  {
    name: "triggers",
    columns: { id: textKey, node: ofNode, event: text, user: text, sent_at: integer, outcome: maybeText },
    indexes: { triggers_by_node: ["node"], triggers_by_time: ["sent_at"] },
  },
  { name: "telemetry_acks", columns: { node: ofNode, stream: text, last: integer }, key: ["node", "stream"] },
  {
    name: "metrics",
    columns: { node: ofNode, t: integer, m: text },
    key: ["node", "t"],
    isKeyed: true,
    indexes: { metrics_by_time: ["t"] },
  },
  {
    name: "gateway_details",
    columns: {
      node: text,
      name: text,
      peer: text,
      peer_uid: text,
      path: text,
      t: integer,
      num_rtt: integer,
      min_rtt: real,
      max_rtt: real,
      mean_rtt: real,
      std_rtt: real,
      hops: maybeText,
    },
    key: ["node", "t", "peer", "path"],
    isKeyed: true,
    indexes: { gateway_details_by_peer: ["peer_uid", "t"], gateway_details_by_time: ["t"] },
  },
  { name: "api_key", columns: { name: textKey, sha256: uniqueText, policies: text } },
  { name: "policy", columns: { name: textKey, body: text } },
  {
    name: "service_user",
    columns: {
      name: textKey,
      created_at: integer,
      client_id: { type: "text", isOptional: true, isUnique: true },
      secret_sha256: maybeText,
    },
  },
  {
    name: "service_user_policy",
    columns: {
      service_user: { type: "text", references: ["service_user", "name", "cascade"] },
      policy: { type: "text", references: ["policy", "name", "restrict"] },
    },
    key: ["service_user", "policy"],
    isKeyed: true,
    indexes: { service_user_policy_by_policy: ["policy"] },
  },
  {
    name: "flows",
    columns: {
      seq: serial,
      node: text,
      source_node: text,
      dest_node: text,
      source_ip: text,
      dest_ip: text,
      source_key: maybeBytes,
      dest_key: maybeBytes,
      source_port: integer,
      dest_port: integer,
      source_bytes: integer,
      dest_bytes: integer,
      started_at: integer,
      ended_at: integer,
      protocol: text,
      tcp_flags: maybeText,
      flags: integer,
      activity: maybeText,
      meta: maybeText,
    },
    indexes: { flows_by_node: ["node", "ended_at"], flows_by_time: ["ended_at"] },
  },
  {
    name: "flow_usage",
    columns: { node: text, t: integer, source: text, bytes: integer, count: integer },
    key: ["node", "t", "source"],
    isKeyed: true,
    indexes: { flow_usage_by_time: ["t"] },
  },
  {
    name: "container_output",
    columns: {
      seq: serial,
      node: text,
      container: text,
      name: text,
      run: text,
      stream: text,
      at: integer,
      text,
      chars: integer,
    },
    indexes: { container_output_by_node: ["node", "at"], container_output_by_time: ["at"] },
  },
  {
    name: "images",
    columns: { node: ofNode, id: text, display_name: text, description: maybeText, location: text, os: text },
    key: ["node", "id"],
    isKeyed: true,
  },
  {
    name: "awaited",
    columns: {
      node: { ...ofNode, isKey: true },
      reason: text,
      since: integer,
      deadline: integer,
      is_reported: flag,
    },
    indexes: { awaited_by_deadline: ["is_reported", "deadline"] },
  },
  {
    name: "agent_tokens",
    columns: {
      id: textKey,
      secret_sha256: text,
      name: maybeText,
      name_prefix: maybeText,
      max_uses: integer,
      created_at: integer,
      expires_at: integer,
      created_by: text,
    },
  },
  {
    name: "agent_token_uses",
    columns: {
      token: { type: "text", references: ["agent_tokens", "id", "cascade"] },
      key: text,
      name: text,
      license: maybeText,
    },
    key: ["token", "key"],
    isKeyed: true,
  },
];

/** Returns the statements that make, in an empty database, the tables that SQLite files have after their own first migrations. */
export function baseline(db: Executor, engine: Engine): readonly Compilable[] {
  return TABLES.flatMap((table) => [[createTable(db, engine, table)], createIndexes(db, table)]).flat();
}

function createTable(db: Executor, engine: Engine, { name, columns, key, isKeyed }: Table): Compilable {
  let table: CreateTableBuilder<string, string> = db.schema.createTable(name);
  for (const [column, description] of Object.entries(columns)) {
    table = table.addColumn(column, engine.types[description.type], (built) => constrain(built, description));
  }
  if (key !== undefined) table = table.addPrimaryKeyConstraint(`${name}_pkey`, [...key]);
  return table.modifyEnd(isKeyed === true ? engine.tableEnd.keyed : engine.tableEnd.plain);
}

function constrain(column: ColumnDefinitionBuilder, description: Column): ColumnDefinitionBuilder {
  const { type, isOptional, isKey, isUnique, references } = description;
  if (type === "serial") return column;
  let built = column;
  if (isKey === true) built = built.primaryKey();
  else if (isOptional !== true) built = built.notNull();
  if (isUnique === true) built = built.unique();
  if (description.default !== undefined) built = built.defaultTo(sql.lit(description.default));
  if (references === undefined) return built;
  const [table, target, onDelete] = references;
  built = built.references(`${table}.${target}`);
  return onDelete === undefined ? built : built.onDelete(onDelete);
}

function createIndexes(db: Executor, { name, indexes = {} }: Table): Compilable[] {
  return Object.entries(indexes).map(([index, columns]) =>
    db.schema
      .createIndex(index)
      .on(name)
      .columns([...columns]),
  );
}
