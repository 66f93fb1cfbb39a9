import type { DocumentName } from "../../../protocol/documents/claims.ts";
import { DocumentApplied } from "../../../protocol/channel/methods.ts";
import { sql } from "kysely";
import { json } from "../../store/columns.ts";
import type { UnacknowledgedDocument } from "../../nodes/desired.ts";
import { engineOf, type Executor } from "../../store/database.ts";
import { statement } from "../../store/statement.ts";

/** Identifies a document of a node; `sub` is its subject. */
export interface DocumentId {
  readonly node: string;
  readonly name: DocumentName;
  readonly sub: string;
}

export interface StoredDocument {
  readonly version: number;
  readonly hash: string;
  /** Body as JSON; never empty, so that it can be signed again. */
  readonly body: string;
  /** Undefined until signed; `seal` names the key and issuer of the signature. */
  readonly jws: string | undefined;
  readonly seal: string | undefined;
}

export interface DocumentStore {
  get(id: DocumentId): Promise<StoredDocument | undefined>;
  /** Returns the version of each document of a node, of any subject. */
  versions(node: string): Promise<readonly (Pick<Id, "name" | "sub"> & { readonly version: number })[]>;
  /** Returns hash and version of each document of these nodes, of any subject. */
  hashes(nodes: readonly string[]): Promise<readonly (Id & { readonly hash: string; readonly version: number })[]>;
  put(
    id: DocumentId,
    document: { readonly version: number; readonly hash: string; readonly body: string },
  ): Promise<void>;
  /** Stores the signed form, unless the version has changed. */
  setJws(id: DocumentId, version: number, jws: string, seal: string): Promise<void>;
  applied(node: string): Promise<Readonly<Partial<Record<DocumentApplied["name"], DocumentApplied>>>>;
  /** Returns the documents of one node, or of all, whose version is newer than the node's latest report about that name. */
  unacknowledged(node?: string): Promise<readonly UnacknowledgedDocument[]>;
  setApplied(node: string, report: DocumentApplied): Promise<void>;
}

type DocumentTables = {
  readonly documents: {
    readonly node: string;
    readonly name: string;
    readonly sub: string;
    readonly version: number;
    readonly hash: string;
    readonly body: string;
    readonly jws: string | null;
    readonly seal: string | null;
  };
  readonly applied: { readonly node: string; readonly name: string; readonly report: string };
};

type Id = Readonly<Record<"node" | "name" | "sub", string>>;
type Content = { readonly version: number; readonly hash: string; readonly body: string };

const GET = statement<Id>()((db, value) =>
  db
    .$extendTables<DocumentTables>()
    .selectFrom("documents")
    .select(["version", "hash", "body", "jws", "seal"])
    .where("node", "=", value("node"))
    .where("name", "=", value("name"))
    .where("sub", "=", value("sub")),
);
const VERSIONS = statement<Pick<Id, "node">>()((db, value) =>
  db
    .$extendTables<DocumentTables>()
    .selectFrom("documents")
    .select(["name", "sub", "version"])
    .where("node", "=", value("node")),
);
const PUT = statement<Id & Content>()((db, value) => {
  const content = { version: value("version"), hash: value("hash"), body: value("body") };
  return db
    .$extendTables<DocumentTables>()
    .insertInto("documents")
    .values({ node: value("node"), name: value("name"), sub: value("sub"), ...content })
    .onConflict((conflict) =>
      conflict.columns(["node", "name", "sub"]).doUpdateSet({ ...content, jws: null, seal: null }),
    );
});
const SET_JWS = statement<Id & { readonly version: number; readonly jws: string; readonly seal: string }>()(
  (db, value) =>
    db
      .$extendTables<DocumentTables>()
      .updateTable("documents")
      .set({ jws: value("jws"), seal: value("seal") })
      .where("node", "=", value("node"))
      .where("name", "=", value("name"))
      .where("sub", "=", value("sub"))
      .where("version", "=", value("version")),
);

const hashesIn = (db: Executor) =>
  db.$extendTables<DocumentTables>().selectFrom("documents").select(["node", "name", "sub", "hash", "version"]);
const HASHES = statement<{ readonly nodes: readonly string[] }>()((db, value) =>
  hashesIn(db).where(engineOf(db).isAnyOf(sql.ref("node"), value("nodes"))),
);
/** Most changes concern one node, which is found without making a table of a list. */
const HASHES_OF = statement<Pick<Id, "node">>()((db, value) => hashesIn(db).where("node", "=", value("node")));
const APPLIED = statement<Pick<Id, "node">>()((db, value) =>
  db.$extendTables<DocumentTables>().selectFrom("applied").select(["name", "report"]).where("node", "=", value("node")),
);
const unacknowledgedIn = (db: Executor) => {
  const engine = engineOf(db);
  const reported = engine.jsonField(sql.ref("applied.report"), "version");
  return db
    .$extendTables<DocumentTables>()
    .selectFrom("documents")
    .leftJoin("applied", (join) =>
      join.onRef("applied.node", "=", "documents.node").onRef("applied.name", "=", "documents.name"),
    )
    .select(["documents.node", "documents.name", "documents.sub", "documents.version"])
    .where("documents.version", ">", sql<number>`coalesce(cast(${reported} as ${engine.types.integer}), 0)`);
};
const ALL_UNACKNOWLEDGED = statement()(unacknowledgedIn);
const UNACKNOWLEDGED = statement<Pick<Id, "node">>()((db, value) =>
  unacknowledgedIn(db).where("documents.node", "=", value("node")),
);

export function documentStore(executor: Executor): DocumentStore {
  const db = executor.$extendTables<DocumentTables>();
  return {
    async get({ node, name, sub }) {
      const [row] = (await GET(executor, { node, name, sub })).rows;
      return row === undefined ? undefined : { ...row, jws: row.jws ?? undefined, seal: row.seal ?? undefined };
    },
    versions: async (node) => (await VERSIONS(executor, { node })).rows,
    async hashes(nodes) {
      const [node = "", ...others] = nodes;
      return (await (others.length === 0 ? HASHES_OF(executor, { node }) : HASHES(executor, { nodes }))).rows;
    },
    async put({ node, name, sub }, { version, hash, body }) {
      await PUT(executor, { node, name, sub, version, hash, body });
    },
    async setJws({ node, name, sub }, version, jws, seal) {
      await SET_JWS(executor, { node, name, sub, version, jws, seal });
    },
    applied: async (node) => reportsIn((await APPLIED(executor, { node })).rows),
    async unacknowledged(node) {
      const found = node === undefined ? ALL_UNACKNOWLEDGED(executor, {}) : UNACKNOWLEDGED(executor, { node });
      return (await found).rows;
    },
    async setApplied(node, applied) {
      const report = JSON.stringify(applied);
      await db
        .insertInto("applied")
        .values({ node, name: applied.name, report })
        .onConflict((conflict) => conflict.columns(["node", "name"]).doUpdateSet({ report }))
        .execute();
    },
  };
}

const reportsIn = (rows: readonly { readonly name: string; readonly report: string }[]) =>
  Object.fromEntries(rows.map((row) => [row.name, json(row, "report", DocumentApplied)]));
