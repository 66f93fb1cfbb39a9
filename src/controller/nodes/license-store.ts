import type { DatabaseSync } from "node:sqlite";
import type { License } from "../../protocol/documents/claims.ts";

/** Issued licenses, kept for 30 days after they expire. Registration depends on the signature alone. */
export interface LicenseStore {
  add(license: License, user: string): void;
  consume(jti: string, nowSeconds: number): void;
  prune(nowSeconds: number): void;
}

const KEPT_SECONDS = 30 * 24 * 3600;

export function licenseStore(sql: DatabaseSync): LicenseStore {
  const add = sql.prepare("INSERT INTO licenses VALUES (?, ?, ?, ?, ?, ?, NULL)");
  const consume = sql.prepare("UPDATE licenses SET consumed_at = ? WHERE jti = ?");
  const prune = sql.prepare("DELETE FROM licenses WHERE expires_at < ?");
  return {
    add: ({ jti, name, type, iat, exp }, user) => void add.run(jti, name, type, Math.floor(iat), Math.floor(exp), user),
    consume: (jti, nowSeconds) => void consume.run(Math.floor(nowSeconds), jti),
    prune: (nowSeconds) => void prune.run(Math.floor(nowSeconds - KEPT_SECONDS)),
  };
}
