import type { DatabaseSync } from "node:sqlite";
import { z } from "zod";
import { Device } from "../../protocol/documents/claims.ts";
import { ConfirmRequest } from "../../protocol/values/commit.ts";
import { Config } from "../../protocol/documents/documents.ts";
import { NodeKeys, type NodeThumbprints } from "../../protocol/values/keys.ts";
import { Heartbeat } from "../../protocol/channel/methods.ts";
import { ShadowMap } from "../../protocol/values/shadow.ts";
import { LifecycleState, NodeState, NodeType, Tags } from "../../protocol/values/values.ts";
import type { IdentityTrail } from "./identity.ts";
import type { ReportedShadow } from "./shadow.ts";
import { json, maybeJson, maybeNumber, maybeText, number, text, word, type Row } from "../store/rows.ts";
import type { NodeRecord } from "./records.ts";
import type { NodeLabel } from "../events/records.ts";

/** A stored node; `isOnline` and `applied` come from elsewhere. */
export type StoredNode = Omit<NodeRecord, "isOnline" | "applied">;

/** Fields that decide a hello. */
export interface NodeCredentials {
  readonly keys: NodeKeys;
  readonly thumbprints: NodeThumbprints;
  readonly trail: IdentityTrail;
  readonly lastIp: string | undefined;
  readonly lockedTo: readonly string[] | undefined;
  readonly unauthorizedIp: string | undefined;
  readonly reportedVersion: number;
}

export interface NewNode {
  readonly uid: string;
  readonly name: string;
  readonly fqdn: string;
  readonly domain: string;
  readonly org: string;
  readonly type: NodeType;
  readonly keys: NodeKeys;
  readonly thumbprints: NodeThumbprints;
  readonly device: Device;
  readonly createdAt: number;
  readonly trail: IdentityTrail;
}

/** Columns of a change; undefined clears an optional one. */
export interface NodeChange {
  readonly state?: NodeState;
  readonly lifecycleState?: LifecycleState | undefined;
  readonly cluster?: string | undefined;
  readonly tags?: Readonly<Record<string, string>>;
  readonly config?: Config;
  readonly confirm?: ConfirmRequest | undefined;
  readonly lockedTo?: readonly string[] | undefined;
  readonly unauthorizedIp?: string | undefined;
}

export interface NodeStore {
  all(): readonly StoredNode[];
  /** Returns the tags of every node that has some. */
  tags(): readonly { readonly uid: string; readonly tags: StoredNode["tags"] }[];
  countOf(type: NodeType): number;
  uids(): readonly string[];
  get(uid: string): StoredNode | undefined;
  byFqdn(fqdn: string): StoredNode | undefined;
  /** Returns UID, name and FQDN, as used in events. */
  label(uid: string): NodeLabel | undefined;
  /** Returns the node with this name or FQDN. */
  uidOf(name: string): string | undefined;
  /** Returns the cluster and domain of a node, the subjects of its documents. */
  placement(uid: string): { readonly cluster: string | undefined; readonly domain: string } | undefined;
  members(cluster: string): readonly string[];
  credentials(uid: string): NodeCredentials | undefined;
  keyOwner(keys: NodeThumbprints, except: string): string | undefined;
  add(node: NewNode): void;
  change(uid: string, change: NodeChange): void;
  connected(
    uid: string,
    at: { readonly lastConnect: number; readonly lastIp: string; readonly trail: IdentityTrail },
  ): void;
  /** Stores the address outside its lock from which a node connects; undefined clears it. */
  setUnauthorizedIp(uid: string, address: string | undefined): void;
  setTrail(uid: string, trail: IdentityTrail): void;
  disconnected(uid: string, atSeconds: number): void;
  /** Stores the end of a session of a node that is expected to reconnect. */
  setDisconnectTime(uid: string, atSeconds: number): void;
  /** Returns nodes that connected and never disconnected, including those of an earlier run. */
  online(): readonly string[];
  /** Reports whether `online` includes a node. */
  isOnline(uid: string): boolean;
  setHeartbeat(uid: string, heartbeat: StoredHeartbeat): void;
  reported(uid: string): ReportedShadow | undefined;
  setReported(uid: string, shadow: ReportedShadow): void;
  remove(uid: string): void;
}

export const StoredHeartbeat = Heartbeat.extend({ receivedAt: z.int().min(0) });
export type StoredHeartbeat = z.infer<typeof StoredHeartbeat>;

const Trail = z.object({
  n: z.int().min(0),
  bootId: z.string().optional(),
  earlierBoots: z.array(z.string()),
  sharedAt: z.number().optional(),
  isHeld: z.boolean(),
});

const Blocks = z.array(z.string());

export function nodeStore(sql: DatabaseSync): NodeStore {
  const all = sql.prepare("SELECT * FROM nodes ORDER BY fqdn");
  const tags = sql.prepare("SELECT uid, tags FROM nodes WHERE tags <> '{}'");
  const countOf = sql.prepare("SELECT count(*) AS n FROM nodes WHERE type = ?");
  const uids = sql.prepare("SELECT uid FROM nodes ORDER BY uid");
  const one = sql.prepare("SELECT * FROM nodes WHERE uid = ?");
  const byFqdn = sql.prepare("SELECT * FROM nodes WHERE fqdn = ?");
  const label = sql.prepare("SELECT uid, name, fqdn FROM nodes WHERE uid = ?");
  const uidOf = sql.prepare("SELECT uid FROM nodes WHERE name = ?1 OR fqdn = ?1");
  const placement = sql.prepare("SELECT cluster, domain FROM nodes WHERE uid = ?");
  const members = sql.prepare("SELECT uid FROM nodes WHERE cluster = ? ORDER BY uid");
  const credentials = sql.prepare(
    "SELECT keys, auth, overlay, wireguard, trail, last_ip, locked_to, unauthorized_ip, reported_version FROM nodes WHERE uid = ?",
  );
  const keyOwner = sql.prepare(
    "SELECT uid FROM nodes WHERE (auth = ? OR overlay = ? OR wireguard = ?) AND uid <> ? LIMIT 1",
  );
  // The unused column speed_token is unique and part of the first schema, so SQLite cannot drop it.
  const add = sql.prepare(
    `INSERT INTO nodes (uid, name, fqdn, domain, org, type, keys, auth, overlay, wireguard, device, created_at, speed_token, trail)
     VALUES (:uid, :name, :fqdn, :domain, :org, :type, :keys, :auth, :overlay, :wireguard, :device, :createdAt, :uid, :trail)`,
  );
  const change = sql.prepare(
    `UPDATE nodes SET state = ?, lifecycle_state = ?, cluster = ?, tags = ?, config = ?, confirm = ?, locked_to = ?, unauthorized_ip = ?
     WHERE uid = ?`,
  );
  const connected = sql.prepare(
    "UPDATE nodes SET last_connect = ?, last_ip = ?, trail = ?, is_online = 1 WHERE uid = ?",
  );
  const setUnauthorizedIp = sql.prepare("UPDATE nodes SET unauthorized_ip = ? WHERE uid = ?");
  const setTrail = sql.prepare("UPDATE nodes SET trail = ? WHERE uid = ?");
  const disconnected = sql.prepare("UPDATE nodes SET disconnect_time = ?, is_online = 0 WHERE uid = ?");
  const setDisconnectTime = sql.prepare("UPDATE nodes SET disconnect_time = ? WHERE uid = ?");
  const online = sql.prepare("SELECT uid FROM nodes WHERE is_online = 1 ORDER BY uid");
  const isOnline = sql.prepare("SELECT 1 FROM nodes WHERE uid = ? AND is_online = 1");
  const setHeartbeat = sql.prepare("UPDATE nodes SET heartbeat = ? WHERE uid = ?");
  const reported = sql.prepare("SELECT reported, reported_version FROM nodes WHERE uid = ?");
  const setReported = sql.prepare("UPDATE nodes SET reported = ?, reported_version = ? WHERE uid = ?");
  const remove = sql.prepare("DELETE FROM nodes WHERE uid = ?");
  const read = (row: Row | undefined): StoredNode | undefined => (row === undefined ? undefined : readNode(row));

  return {
    all: () => all.all().map(readNode),
    tags: () => tags.all().map((row) => ({ uid: text(row, "uid"), tags: json(row, "tags", Tags) })),
    countOf: (type) => Number(countOf.get(type)?.["n"] ?? 0),
    uids: () => uids.all().map((row) => text(row, "uid")),
    get: (uid) => read(one.get(uid)),
    byFqdn: (fqdn) => read(byFqdn.get(fqdn)),
    label(uid) {
      const row = label.get(uid);
      return row === undefined
        ? undefined
        : { uid: text(row, "uid"), name: text(row, "name"), fqdn: text(row, "fqdn") };
    },
    uidOf: (name) => column(uidOf.get(name), "uid"),
    placement(uid) {
      const row = placement.get(uid);
      return row === undefined ? undefined : { cluster: maybeText(row, "cluster"), domain: text(row, "domain") };
    },
    members: (cluster) => members.all(cluster).map((row) => text(row, "uid")),
    credentials(uid) {
      const row = credentials.get(uid);
      return row === undefined ? undefined : readCredentials(row);
    },
    keyOwner: ({ auth, overlay, wireguard }, except) => column(keyOwner.get(auth, overlay, wireguard, except), "uid"),
    add: ({ thumbprints, keys, device, trail, ...plain }) =>
      void add.run({
        ...plain,
        ...thumbprints,
        keys: JSON.stringify(keys),
        device: JSON.stringify(device),
        trail: JSON.stringify(trail),
      }),
    change(uid, wanted) {
      const row = one.get(uid);
      if (row === undefined) return;
      const has = (key: keyof NodeChange): boolean => Object.hasOwn(wanted, key);
      change.run(
        wanted.state ?? text(row, "state"),
        has("lifecycleState") ? (wanted.lifecycleState ?? null) : (maybeText(row, "lifecycle_state") ?? null),
        has("cluster") ? (wanted.cluster ?? null) : (maybeText(row, "cluster") ?? null),
        wanted.tags === undefined ? text(row, "tags") : JSON.stringify(wanted.tags),
        wanted.config === undefined ? text(row, "config") : JSON.stringify(wanted.config),
        // Applies to the latest change only.
        wanted.confirm === undefined ? null : JSON.stringify(wanted.confirm),
        has("lockedTo") ? listOrNull(wanted.lockedTo) : (maybeText(row, "locked_to") ?? null),
        has("unauthorizedIp") ? (wanted.unauthorizedIp ?? null) : (maybeText(row, "unauthorized_ip") ?? null),
        uid,
      );
    },
    connected: (uid, { lastConnect, lastIp, trail }) =>
      void connected.run(lastConnect, lastIp, JSON.stringify(trail), uid),
    setUnauthorizedIp: (uid, address) => void setUnauthorizedIp.run(address ?? null, uid),
    setTrail: (uid, trail) => void setTrail.run(JSON.stringify(trail), uid),
    disconnected: (uid, atSeconds) => void disconnected.run(Math.floor(atSeconds), uid),
    setDisconnectTime: (uid, atSeconds) => void setDisconnectTime.run(Math.floor(atSeconds), uid),
    online: () => online.all().map((row) => text(row, "uid")),
    isOnline: (uid) => isOnline.get(uid) !== undefined,
    setHeartbeat: (uid, heartbeat) => void setHeartbeat.run(JSON.stringify(heartbeat), uid),
    reported(uid) {
      const row = reported.get(uid);
      if (row === undefined) return undefined;
      return { version: number(row, "reported_version"), reported: json(row, "reported", ShadowMap) };
    },
    setReported: (uid, shadow) => void setReported.run(JSON.stringify(shadow.reported), shadow.version, uid),
    remove: (uid) => void remove.run(uid),
  };
}

function column(row: Row | undefined, name: string): string | undefined {
  return row === undefined ? undefined : text(row, name);
}

const listOrNull = (list: readonly string[] | undefined): string | null =>
  list === undefined ? null : JSON.stringify(list);

function readTrail(row: Row): IdentityTrail {
  const { n, bootId, earlierBoots, sharedAt, isHeld } = json(row, "trail", Trail);
  return { n, bootId, earlierBoots, sharedAt, isHeld };
}

function readCredentials(row: Row): NodeCredentials {
  return {
    keys: json(row, "keys", NodeKeys),
    thumbprints: { auth: text(row, "auth"), overlay: text(row, "overlay"), wireguard: text(row, "wireguard") },
    trail: readTrail(row),
    lastIp: maybeText(row, "last_ip"),
    lockedTo: maybeJson(row, "locked_to", Blocks),
    unauthorizedIp: maybeText(row, "unauthorized_ip"),
    reportedVersion: number(row, "reported_version"),
  };
}

function readNode(row: Row): StoredNode {
  return {
    uid: text(row, "uid"),
    name: text(row, "name"),
    fqdn: text(row, "fqdn"),
    domain: text(row, "domain"),
    org: text(row, "org"),
    type: word(row, "type", NodeType),
    state: word(row, "state", NodeState),
    lifecycleState: row["lifecycle_state"] === null ? undefined : word(row, "lifecycle_state", LifecycleState),
    cluster: maybeText(row, "cluster"),
    tags: json(row, "tags", Tags),
    keys: json(row, "keys", NodeKeys),
    lastIp: maybeText(row, "last_ip"),
    lockedTo: maybeJson(row, "locked_to", Blocks),
    unauthorizedIp: maybeText(row, "unauthorized_ip"),
    lastConnect: maybeNumber(row, "last_connect"),
    disconnectTime: maybeNumber(row, "disconnect_time"),
    createdAt: number(row, "created_at"),
    device: maybeJson(row, "device", Device),
    heartbeat: maybeJson(row, "heartbeat", StoredHeartbeat),
    config: json(row, "config", Config),
    confirm: maybeJson(row, "confirm", ConfirmRequest),
    reported: json(row, "reported", ShadowMap),
  };
}
