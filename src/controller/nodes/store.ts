import { sql, type ExpressionBuilder, type Generated, type Selectable } from "kysely";
import { z } from "zod";
import { Device } from "../../protocol/documents/claims.ts";
import { ConfirmRequest } from "../../protocol/values/commit.ts";
import { Config } from "../../protocol/documents/documents.ts";
import { NodeKeys, type NodeThumbprints } from "../../protocol/values/keys.ts";
import { Heartbeat } from "../../protocol/channel/methods.ts";
import { ShadowMap, ShadowValue } from "../../protocol/values/shadow.ts";
import { LifecycleState, NodeState, NodeType, Tags } from "../../protocol/values/values.ts";
import { ClientKeys, ownKeys } from "./client-keys.ts";
import type { IdentityTrail } from "./identity.ts";
import type { ReportedShadow } from "./shadow.ts";
import { json, maybeJson, maybeWord, ParsedTexts, word } from "../store/columns.ts";
import { engineOf, type Executor } from "../store/database.ts";
import { statement } from "../store/statement.ts";
import { tagsIn } from "./tag-store.ts";
import type { ListedNode, Part } from "./records.ts";
import type { NodeLabel } from "../events/records.ts";

/** A stored node; `isOnline`, `desired` and `location` come from elsewhere. */
export type StoredNode = Omit<ListedNode, "isOnline" | "desired" | "location">;

/** Fields of a node that its documents are made of. */
export type NodeContent = Pick<
  StoredNode,
  | "uid"
  | "name"
  | "fqdn"
  | "domain"
  | "org"
  | "type"
  | "state"
  | "lifecycleState"
  | "cluster"
  | "tags"
  | "unauthorizedIp"
  | "config"
  | "confirm"
>;

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
  readonly orderID?: string | undefined;
}

/** Columns of a change; undefined clears an optional one. */
export interface NodeChange {
  readonly state?: NodeState;
  readonly lifecycleState?: LifecycleState | undefined;
  readonly cluster?: string | undefined;
  readonly tags?: Readonly<Record<string, string>>;
  readonly clientKeys?: ClientKeys;
  readonly config?: Config;
  readonly confirm?: ConfirmRequest | undefined;
  readonly lockedTo?: readonly string[] | undefined;
  readonly unauthorizedIp?: string | undefined;
}

/** Nodes of a list: those after an FQDN, of a cluster. */
export interface NodeFilter {
  readonly after?: string | undefined;
  readonly cluster?: string | undefined;
}

/** Nodes of a list that are read and shown at a time. */
export const NODES_OF_PAGE = 500;

export interface NodeStore {
  /**
   * Returns the next nodes of a list by FQDN with these parts, at most `NODES_OF_PAGE`. Without `shadow`, `reported` has only the keys
   * that tags of the system are made of.
   */
  page(parts: ReadonlySet<Part>, filter: NodeFilter): Promise<readonly StoredNode[]>;
  /** Returns those of the nodes that exist. */
  contents(uids: readonly string[]): Promise<readonly NodeContent[]>;
  /** Returns the tags that count, its own and those of its cluster below them, and the creation of every node that has some. */
  tags(): Promise<readonly Pick<StoredNode, "uid" | "tags" | "createdAt">[]>;
  countOf(type: NodeType): Promise<number>;
  uids(): Promise<readonly string[]>;
  get(uid: string): Promise<StoredNode | undefined>;
  byFqdn(fqdn: string): Promise<StoredNode | undefined>;
  /** Returns UID, name and FQDN, as used in events. */
  label(uid: string): Promise<NodeLabel | undefined>;
  /** Returns the node with this name or FQDN. */
  uidOf(name: string): Promise<string | undefined>;
  /** Returns the nodes with these UIDs, names or FQDNs. */
  called(aliases: readonly string[]): Promise<readonly NodeLabel[]>;
  /** Returns the cluster and domain of a node, the subjects of its documents. */
  placement(uid: string): Promise<{ readonly cluster: string | undefined; readonly domain: string } | undefined>;
  members(cluster: string): Promise<readonly string[]>;
  credentials(uid: string): Promise<NodeCredentials | undefined>;
  keyOwner(keys: NodeThumbprints, except: string): Promise<string | undefined>;
  add(node: NewNode): Promise<void>;
  change(uid: string, change: NodeChange): Promise<void>;
  connected(
    uid: string,
    at: { readonly lastConnect: number; readonly lastIp: string; readonly trail: IdentityTrail },
  ): Promise<void>;
  /** Stores the address outside its lock from which a node connects; undefined clears it. */
  setUnauthorizedIp(uid: string, address: string | undefined): Promise<void>;
  setTrail(uid: string, trail: IdentityTrail): Promise<void>;
  disconnected(uid: string, atSeconds: number): Promise<void>;
  /** Stores the end of a session of a node that is expected to reconnect. */
  setDisconnectTime(uid: string, atSeconds: number): Promise<void>;
  /** Returns nodes that connected and never disconnected, including those of an earlier run. */
  online(): Promise<readonly string[]>;
  /** Reports whether `online` includes a node. */
  isOnline(uid: string): Promise<boolean>;
  setHeartbeat(uid: string, heartbeat: StoredHeartbeat): Promise<void>;
  reported(uid: string): Promise<ReportedShadow | undefined>;
  setReported(uid: string, shadow: ReportedShadow): Promise<void>;
  remove(uid: string): Promise<void>;
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

type NodeTables = {
  readonly nodes: {
    readonly uid: string;
    readonly name: string;
    readonly fqdn: string;
    readonly domain: string;
    readonly org: string;
    readonly type: string;
    readonly state: Generated<string>;
    readonly lifecycle_state: string | null;
    readonly cluster: string | null;
    readonly tags: Generated<string>;
    readonly config: Generated<string>;
    readonly keys: string;
    readonly auth: string;
    readonly overlay: string;
    readonly wireguard: string;
    readonly device: string | null;
    readonly created_at: number;
    readonly speed_token: string;
    readonly last_ip: string | null;
    readonly last_connect: number | null;
    readonly disconnect_time: number | null;
    readonly heartbeat: string | null;
    readonly reported: Generated<string>;
    readonly reported_version: Generated<number>;
    readonly trail: string;
    readonly is_online: Generated<number>;
    readonly confirm: string | null;
    readonly locked_to: string | null;
    readonly unauthorized_ip: string | null;
    readonly client_keys: string | null;
    readonly order_id: string | null;
  };
  readonly clusters: { readonly fqdn: string; readonly tags: string };
};
type NodeRow = Selectable<NodeTables["nodes"]>;
/** Tags of the cluster of a node. */
type Inherited = { readonly inherited?: string | null };
type Uid = { readonly uid: string };

/** Keys of the reported shadow that tags of the system are made of. */
const OS = "os.distro.id";
const ARCH = "os.arch";
const CONTENT = [
  "uid",
  "name",
  "fqdn",
  "domain",
  "org",
  "type",
  "state",
  "lifecycle_state",
  "cluster",
  "tags",
  "unauthorized_ip",
  "config",
  "confirm",
] as const;
const LISTED = ["uid", "name", "fqdn", "type", "state", "tags", "keys", "client_keys", "device"] as const;
const DETAILS = [
  "domain",
  "org",
  "lifecycle_state",
  "cluster",
  "last_ip",
  "locked_to",
  "unauthorized_ip",
  "last_connect",
  "disconnect_time",
  "created_at",
  "order_id",
] as const;

const inheritedTags = (eb: ExpressionBuilder<NodeTables, "nodes">) =>
  eb.selectFrom("clusters").select("clusters.tags").whereRef("clusters.fqdn", "=", "nodes.cluster").as("inherited");

const GET = statement<Uid>()((db, value) =>
  db.$extendTables<NodeTables>().selectFrom("nodes").selectAll().select(inheritedTags).where("uid", "=", value("uid")),
);
const LABEL = statement<Uid>()((db, value) =>
  db.$extendTables<NodeTables>().selectFrom("nodes").select(["uid", "name", "fqdn"]).where("uid", "=", value("uid")),
);
const PLACEMENT = statement<Uid>()((db, value) =>
  db.$extendTables<NodeTables>().selectFrom("nodes").select(["cluster", "domain"]).where("uid", "=", value("uid")),
);
const CREDENTIALS = statement<Uid>()((db, value) =>
  db
    .$extendTables<NodeTables>()
    .selectFrom("nodes")
    .select([
      "keys",
      "auth",
      "overlay",
      "wireguard",
      "trail",
      "last_ip",
      "locked_to",
      "unauthorized_ip",
      "reported_version",
    ])
    .where("uid", "=", value("uid")),
);
const CONNECTED = statement<Uid & { readonly at: number; readonly ip: string; readonly trail: string }>()((db, value) =>
  db
    .$extendTables<NodeTables>()
    .updateTable("nodes")
    .set({ last_connect: value("at"), last_ip: value("ip"), trail: value("trail"), is_online: 1 })
    .where("uid", "=", value("uid")),
);
const DISCONNECTED = statement<Uid & { readonly at: number }>()((db, value) =>
  db
    .$extendTables<NodeTables>()
    .updateTable("nodes")
    .set({ disconnect_time: value("at"), is_online: 0 })
    .where("uid", "=", value("uid")),
);
const SET_DISCONNECT_TIME = statement<Uid & { readonly at: number }>()((db, value) =>
  db
    .$extendTables<NodeTables>()
    .updateTable("nodes")
    .set({ disconnect_time: value("at") })
    .where("uid", "=", value("uid")),
);
const IS_ONLINE = statement<Uid>()((db, value) =>
  db
    .$extendTables<NodeTables>()
    .selectFrom("nodes")
    .select("uid")
    .where("uid", "=", value("uid"))
    .where("is_online", "=", 1),
);
const SET_CONFIG = statement<Uid & { readonly config: string; readonly confirm: string | null }>()((db, value) =>
  db
    .$extendTables<NodeTables>()
    .updateTable("nodes")
    .set({ config: value("config"), confirm: value("confirm") })
    .where("uid", "=", value("uid")),
);
const SET_HEARTBEAT = statement<Uid & { readonly heartbeat: string }>()((db, value) =>
  db
    .$extendTables<NodeTables>()
    .updateTable("nodes")
    .set({ heartbeat: value("heartbeat") })
    .where("uid", "=", value("uid")),
);
const REPORTED = statement<Uid>()((db, value) =>
  db
    .$extendTables<NodeTables>()
    .selectFrom("nodes")
    .select(["reported", "reported_version"])
    .where("uid", "=", value("uid")),
);
const SET_REPORTED = statement<Uid & { readonly reported: string; readonly version: number }>()((db, value) =>
  db
    .$extendTables<NodeTables>()
    .updateTable("nodes")
    .set({ reported: value("reported"), reported_version: value("version") })
    .where("uid", "=", value("uid")),
);

const contentsIn = (db: Executor) => db.$extendTables<NodeTables>().selectFrom("nodes").select(CONTENT);
const CONTENTS = statement<{ readonly uids: readonly string[] }>()((db, value) =>
  contentsIn(db).where(engineOf(db).isAnyOf(sql.ref("uid"), value("uids"))),
);
/** Most changes concern one node, which is found without making a table of a list. */
const CONTENT_OF = statement<Uid>()((db, value) => contentsIn(db).where("uid", "=", value("uid")));
const CALLED = statement<{ readonly aliases: readonly string[] }>()((db, value) =>
  db
    .$extendTables<NodeTables>()
    .selectFrom("nodes")
    .select(["uid", "name", "fqdn"])
    .where((eb) =>
      eb.or(["uid", "name", "fqdn"].map((column) => engineOf(db).isAnyOf(sql.ref(column), value("aliases")))),
    ),
);

/** Texts of nodes that many reads parse. */
export class NodeTexts {
  readonly tags = new ParsedTexts("tags", Tags);
  readonly inherited = new ParsedTexts("inherited", Tags);
  readonly keys = new ParsedTexts("keys", NodeKeys.transform(ownKeys));
  readonly device = new ParsedTexts("device", Device);
  /** Single values of shadows. */
  readonly reported = new ParsedTexts("reported", ShadowValue);
}

export function nodeStore(executor: Executor, texts = new NodeTexts()): NodeStore {
  const db = executor.$extendTables<NodeTables>();
  const engine = engineOf(executor);
  const reported = sql.ref("reported");
  const uids = () => db.selectFrom("nodes").select("uid").orderBy("uid");
  return {
    async page(parts, { after = "", cluster }) {
      const rows = await db
        .selectFrom("nodes")
        .select(LISTED)
        .$if(parts.has("details"), (query) => query.select(DETAILS))
        .$if(parts.has("inheritedTags"), (query) => query.select(inheritedTags))
        .$if(parts.has("heartbeat"), (query) => query.select("heartbeat"))
        .$if(parts.has("config"), (query) => query.select("config"))
        .$if(parts.has("shadow"), (query) => query.select("reported"))
        .$if(!parts.has("shadow"), (query) =>
          query.select([engine.jsonMember(reported, OS).as("os"), engine.jsonMember(reported, ARCH).as("arch")]),
        )
        .where("fqdn", ">", after)
        .$if(cluster !== undefined, (query) => query.where("cluster", "=", cluster ?? ""))
        .orderBy("fqdn")
        .limit(NODES_OF_PAGE)
        .execute();
      return rows.map((row) => readNode(row, texts));
    },
    async contents(list) {
      const [uid = "", ...others] = list;
      const found = others.length === 0 ? CONTENT_OF(executor, { uid }) : CONTENTS(executor, { uids: list });
      return (await found).rows.map((row) => readContent(row, texts));
    },
    async tags() {
      const rows = await db
        .selectFrom("nodes")
        .leftJoin("clusters", "clusters.fqdn", "nodes.cluster")
        .select(["nodes.uid", "nodes.tags", "nodes.created_at", "clusters.tags as inherited"])
        .where((eb) => eb.or([eb("nodes.tags", "<>", "{}"), eb("clusters.tags", "<>", "{}")]))
        .execute();
      return rows.map((row) => ({ uid: row.uid, tags: tagsIn(row), createdAt: row.created_at }));
    },
    async countOf(type) {
      const count = db.selectFrom("nodes").select((eb) => eb.fn.countAll<number>().as("total"));
      return (await count.where("type", "=", type).executeTakeFirst())?.total ?? 0;
    },
    uids: async () => uidsIn(await uids().execute()),
    async get(uid) {
      const [row] = (await GET(executor, { uid })).rows;
      return row === undefined ? undefined : readNode(row, texts);
    },
    async byFqdn(fqdn) {
      const row = await db
        .selectFrom("nodes")
        .selectAll()
        .select(inheritedTags)
        .where("fqdn", "=", fqdn)
        .executeTakeFirst();
      return row === undefined ? undefined : readNode(row, texts);
    },
    label: async (uid) => (await LABEL(executor, { uid })).rows[0],
    async uidOf(name) {
      const row = await db
        .selectFrom("nodes")
        .select("uid")
        .where((eb) => eb.or([eb("name", "=", name), eb("fqdn", "=", name)]))
        .executeTakeFirst();
      return row?.uid;
    },
    called: async (aliases) => (await CALLED(executor, { aliases })).rows,
    async placement(uid) {
      const [row] = (await PLACEMENT(executor, { uid })).rows;
      return row === undefined ? undefined : { cluster: row.cluster ?? undefined, domain: row.domain };
    },
    members: async (cluster) => uidsIn(await uids().where("cluster", "=", cluster).execute()),
    async credentials(uid) {
      const [row] = (await CREDENTIALS(executor, { uid })).rows;
      return row === undefined ? undefined : readCredentials(row);
    },
    async keyOwner({ auth, overlay, wireguard }, except) {
      const row = await db
        .selectFrom("nodes")
        .select("uid")
        .where((eb) => eb.or([eb("auth", "=", auth), eb("overlay", "=", overlay), eb("wireguard", "=", wireguard)]))
        .where("uid", "<>", except)
        .executeTakeFirst();
      return row?.uid;
    },
    async add({ uid, name, fqdn, domain, org, type, thumbprints, keys, device, createdAt, trail, orderID }) {
      await db
        .insertInto("nodes")
        .values({
          uid,
          name,
          fqdn,
          domain,
          org,
          type,
          auth: thumbprints.auth,
          overlay: thumbprints.overlay,
          wireguard: thumbprints.wireguard,
          keys: JSON.stringify(keys),
          device: JSON.stringify(device),
          created_at: createdAt,
          // Unused, unique, and part of the first schema.
          speed_token: uid,
          trail: JSON.stringify(trail),
          order_id: orderID ?? null,
        })
        .execute();
    },
    async change(uid, wanted) {
      const { state, tags, clientKeys, config, ...others } = wanted;
      const confirm = others.confirm === undefined ? null : JSON.stringify(others.confirm);
      const has = (key: keyof NodeChange): boolean => Object.hasOwn(wanted, key);
      // Nearly all changes are of the configuration alone.
      if (config !== undefined && Object.keys(wanted).every((key) => key === "config" || key === "confirm")) {
        await SET_CONFIG(executor, { uid, config: JSON.stringify(config), confirm });
        return;
      }
      await db
        .updateTable("nodes")
        .set({
          ...(state === undefined ? {} : { state }),
          ...(has("lifecycleState") ? { lifecycle_state: wanted.lifecycleState ?? null } : {}),
          ...(has("cluster") ? { cluster: wanted.cluster ?? null } : {}),
          ...(tags === undefined ? {} : { tags: JSON.stringify(tags) }),
          ...(clientKeys === undefined ? {} : { client_keys: JSON.stringify(clientKeys) }),
          ...(config === undefined ? {} : { config: JSON.stringify(config) }),
          // Applies to the latest change only.
          confirm,
          ...(has("lockedTo") ? { locked_to: listOrNull(wanted.lockedTo) } : {}),
          ...(has("unauthorizedIp") ? { unauthorized_ip: wanted.unauthorizedIp ?? null } : {}),
        })
        .where("uid", "=", uid)
        .execute();
    },
    async connected(uid, { lastConnect, lastIp, trail }) {
      await CONNECTED(executor, { uid, at: lastConnect, ip: lastIp, trail: JSON.stringify(trail) });
    },
    async setUnauthorizedIp(uid, address) {
      await db
        .updateTable("nodes")
        .set({ unauthorized_ip: address ?? null })
        .where("uid", "=", uid)
        .execute();
    },
    async setTrail(uid, trail) {
      await db
        .updateTable("nodes")
        .set({ trail: JSON.stringify(trail) })
        .where("uid", "=", uid)
        .execute();
    },
    async disconnected(uid, atSeconds) {
      await DISCONNECTED(executor, { uid, at: Math.floor(atSeconds) });
    },
    async setDisconnectTime(uid, atSeconds) {
      await SET_DISCONNECT_TIME(executor, { uid, at: Math.floor(atSeconds) });
    },
    online: async () => uidsIn(await uids().where("is_online", "=", 1).execute()),
    isOnline: async (uid) => (await IS_ONLINE(executor, { uid })).rows.length > 0,
    async setHeartbeat(uid, heartbeat) {
      await SET_HEARTBEAT(executor, { uid, heartbeat: JSON.stringify(heartbeat) });
    },
    async reported(uid) {
      const [row] = (await REPORTED(executor, { uid })).rows;
      return row === undefined
        ? undefined
        : { version: row.reported_version, reported: json(row, "reported", ShadowMap) };
    },
    async setReported(uid, { reported, version }) {
      await SET_REPORTED(executor, { uid, reported: JSON.stringify(reported), version });
    },
    async remove(uid) {
      await db.deleteFrom("nodes").where("uid", "=", uid).execute();
    },
  };
}

const uidsIn = (rows: readonly { readonly uid: string }[]): readonly string[] => rows.map(({ uid }) => uid);

const listOrNull = (list: readonly string[] | undefined): string | null =>
  list === undefined ? null : JSON.stringify(list);

function readTrail(row: { readonly trail: string }): IdentityTrail {
  const { n, bootId, earlierBoots, sharedAt, isHeld } = json(row, "trail", Trail);
  return { n, bootId, earlierBoots, sharedAt, isHeld };
}

function readCredentials(
  row: Pick<
    NodeRow,
    | "keys"
    | "auth"
    | "overlay"
    | "wireguard"
    | "trail"
    | "last_ip"
    | "locked_to"
    | "unauthorized_ip"
    | "reported_version"
  >,
): NodeCredentials {
  return {
    keys: json(row, "keys", NodeKeys),
    thumbprints: { auth: row.auth, overlay: row.overlay, wireguard: row.wireguard },
    trail: readTrail(row),
    lastIp: row.last_ip ?? undefined,
    lockedTo: maybeJson(row, "locked_to", Blocks),
    unauthorizedIp: row.unauthorized_ip ?? undefined,
    reportedVersion: row.reported_version,
  };
}

type ListedRow = Pick<NodeRow, (typeof LISTED)[number]> &
  Partial<Pick<NodeRow, (typeof DETAILS)[number] | "heartbeat" | "config" | "confirm" | "reported">> &
  Inherited & { readonly os?: string | null; readonly arch?: string | null };

/** Makes a node in one piece, since lists have many; what the row lacks is empty. */
function readNode(row: ListedRow, texts: NodeTexts): StoredNode {
  return {
    uid: row.uid,
    name: row.name,
    fqdn: row.fqdn,
    domain: row.domain ?? "",
    org: row.org ?? "",
    type: word(row, "type", NodeType),
    state: word(row, "state", NodeState),
    lifecycleState: maybeWord(row, "lifecycle_state", LifecycleState),
    cluster: row.cluster ?? undefined,
    tags: texts.tags.of(row.tags),
    inheritedTags: texts.inherited.ofMaybe(row.inherited),
    keys: texts.keys.of(row.keys),
    clientKeys: maybeJson(row, "client_keys", ClientKeys),
    lastIp: row.last_ip ?? undefined,
    lockedTo: maybeJson(row, "locked_to", Blocks),
    unauthorizedIp: row.unauthorized_ip ?? undefined,
    lastConnect: row.last_connect ?? undefined,
    disconnectTime: row.disconnect_time ?? undefined,
    createdAt: row.created_at ?? 0,
    orderID: row.order_id ?? undefined,
    device: texts.device.ofMaybe(row.device),
    heartbeat: maybeJson(row, "heartbeat", StoredHeartbeat),
    config: maybeJson(row, "config", Config) ?? {},
    confirm: maybeJson(row, "confirm", ConfirmRequest),
    reported: maybeJson(row, "reported", ShadowMap) ?? platformOf(row, texts),
  };
}

function platformOf({ os, arch }: Pick<ListedRow, "os" | "arch">, { reported }: NodeTexts): ShadowMap {
  return {
    ...(typeof os === "string" ? { [OS]: reported.of(os) } : {}),
    ...(typeof arch === "string" ? { [ARCH]: reported.of(arch) } : {}),
  };
}

function readContent(row: Pick<NodeRow, (typeof CONTENT)[number]>, texts: NodeTexts): NodeContent {
  return {
    uid: row.uid,
    name: row.name,
    fqdn: row.fqdn,
    domain: row.domain,
    org: row.org,
    type: word(row, "type", NodeType),
    state: word(row, "state", NodeState),
    lifecycleState: maybeWord(row, "lifecycle_state", LifecycleState),
    cluster: row.cluster ?? undefined,
    tags: texts.tags.of(row.tags),
    unauthorizedIp: row.unauthorized_ip ?? undefined,
    config: json(row, "config", Config),
    confirm: maybeJson(row, "confirm", ConfirmRequest),
  };
}
