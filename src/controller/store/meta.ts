import type { KeysEnvelope } from "../../protocol/channel/keys-chain.ts";
import type { Executor } from "./database.ts";
import { statement } from "./statement.ts";

/**
 * `mesh` is the mark of the latest change of what nodes share with each other; `document-floor` a number that the versions of new
 * documents exceed; `restored` the identifier of the restore that filled this store; `moved-to` the store that this one was copied to.
 */
type MetaKey =
  | "org"
  | "domain"
  | "admin-key-hash"
  | "mesh"
  | "document-floor"
  | "restored"
  | "moved-to"
  | "org-profile"
  | "org-auth"
  | "domain-config"
  | "own-certificate-reported";

/** Single values of this control plane, and the versions of its keys document. */
export interface MetaStore {
  get(key: MetaKey): Promise<string | undefined>;
  set(key: MetaKey, value: string): Promise<void>;
  keyDocuments(): Promise<readonly KeysEnvelope[]>;
  appendKeyDocument(version: number, envelope: KeysEnvelope): Promise<void>;
}

type MetaTables = {
  readonly meta: { readonly key: string; readonly value: string };
  readonly key_documents: { readonly version: number; readonly jws: string; readonly cross_jws: string | null };
};

const GET = statement<{ readonly key: string }>()((db, value) =>
  db.$extendTables<MetaTables>().selectFrom("meta").select("value").where("key", "=", value("key")),
);

const SET = statement<{ readonly key: string; readonly value: string }>()((db, value) =>
  db
    .$extendTables<MetaTables>()
    .insertInto("meta")
    .values({ key: value("key"), value: value("value") })
    .onConflict((conflict) => conflict.column("key").doUpdateSet({ value: value("value") })),
);

export function metaStore(executor: Executor): MetaStore {
  const db = executor.$extendTables<MetaTables>();
  return {
    get: async (key) => (await GET(executor, { key })).rows[0]?.value,
    async set(key, value) {
      await SET(executor, { key, value });
    },
    async keyDocuments() {
      const rows = await db.selectFrom("key_documents").select(["jws", "cross_jws"]).orderBy("version").execute();
      return rows.map(({ jws, cross_jws: cross }) => (cross === null ? { jws } : { jws, cross }));
    },
    async appendKeyDocument(version, { jws, cross }) {
      await db
        .insertInto("key_documents")
        .values({ version, jws, cross_jws: cross ?? null })
        .execute();
    },
  };
}
