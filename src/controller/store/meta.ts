import type { DatabaseSync } from "node:sqlite";
import type { KeysEnvelope } from "../../protocol/channel/keys-chain.ts";
import { maybeText, text } from "./rows.ts";

type MetaKey = "org" | "domain" | "admin-key-hash";

/** Single values of this control plane, and the versions of its keys document. */
export interface MetaStore {
  get(key: MetaKey): string | undefined;
  set(key: MetaKey, value: string): void;
  keyDocuments(): readonly KeysEnvelope[];
  appendKeyDocument(version: number, envelope: KeysEnvelope): void;
}

export function metaStore(sql: DatabaseSync): MetaStore {
  const get = sql.prepare("SELECT value FROM meta WHERE key = ?");
  const set = sql.prepare("INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value");
  const documents = sql.prepare("SELECT jws, cross_jws FROM key_documents ORDER BY version");
  const append = sql.prepare("INSERT INTO key_documents VALUES (?, ?, ?)");
  return {
    get(key) {
      const row = get.get(key);
      return row === undefined ? undefined : text(row, "value");
    },
    set: (key, value) => void set.run(key, value),
    keyDocuments: () =>
      documents.all().map((row) => {
        const cross = maybeText(row, "cross_jws");
        return cross === undefined ? { jws: text(row, "jws") } : { jws: text(row, "jws"), cross };
      }),
    appendKeyDocument: (version, { jws, cross }) => void append.run(version, jws, cross ?? null),
  };
}
