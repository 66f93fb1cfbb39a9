import type { DatabaseSync } from "node:sqlite";
import type { DocumentName } from "../../../protocol/documents/claims.ts";
import { DocumentApplied } from "../../../protocol/channel/methods.ts";
import { json, maybeText, number, text } from "../../store/rows.ts";

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
  get(id: DocumentId): StoredDocument | undefined;
  /** Highest version a node ever got under this name, for any subject; 0 if none. */
  highest(node: string, name: DocumentName): number;
  put(id: DocumentId, document: { readonly version: number; readonly hash: string; readonly body: string }): void;
  /** Stores the signed form, unless the version has changed. */
  setJws(id: DocumentId, version: number, jws: string, seal: string): void;
  applied(node: string): Readonly<Partial<Record<DocumentApplied["name"], DocumentApplied>>>;
  setApplied(node: string, report: DocumentApplied): void;
}

export function documentStore(sql: DatabaseSync): DocumentStore {
  const get = sql.prepare(
    "SELECT version, hash, body, jws, seal FROM documents WHERE node = ? AND name = ? AND sub = ?",
  );
  const highest = sql.prepare("SELECT coalesce(max(version), 0) AS version FROM documents WHERE node = ? AND name = ?");
  const put = sql.prepare(
    `INSERT INTO documents (node, name, sub, version, hash, body) VALUES (?, ?, ?, ?, ?, ?)
     ON CONFLICT DO UPDATE SET version = excluded.version, hash = excluded.hash, body = excluded.body, jws = NULL, seal = NULL`,
  );
  const setJws = sql.prepare(
    "UPDATE documents SET jws = ?, seal = ? WHERE node = ? AND name = ? AND sub = ? AND version = ?",
  );
  const applied = sql.prepare("SELECT name, report FROM applied WHERE node = ?");
  const setApplied = sql.prepare(
    "INSERT INTO applied VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET report = excluded.report",
  );
  return {
    get({ node, name, sub }) {
      const row = get.get(node, name, sub);
      if (row === undefined) return undefined;
      return {
        version: number(row, "version"),
        hash: text(row, "hash"),
        body: text(row, "body"),
        jws: maybeText(row, "jws"),
        seal: maybeText(row, "seal"),
      };
    },
    highest: (node, name) => Number(highest.get(node, name)?.["version"] ?? 0),
    put: ({ node, name, sub }, { version, hash, body }) => void put.run(node, name, sub, version, hash, body),
    setJws: ({ node, name, sub }, version, jws, seal) => void setJws.run(jws, seal, node, name, sub, version),
    applied: (node) =>
      Object.fromEntries(applied.all(node).map((row) => [text(row, "name"), json(row, "report", DocumentApplied)])),
    setApplied: (node, report) => void setApplied.run(node, report.name, JSON.stringify(report)),
  };
}
