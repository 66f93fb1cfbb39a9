import type { License } from "../../protocol/documents/claims.ts";
import type { Executor } from "../store/database.ts";

/** Issued licenses, kept for 30 days after they expire. Registration depends on the signature alone. */
export interface LicenseStore {
  add(license: License, user: string): Promise<void>;
  consume(jti: string, nowSeconds: number): Promise<void>;
  prune(nowSeconds: number): Promise<void>;
}

const KEPT_SECONDS = 30 * 24 * 3600;

type LicenseTables = {
  readonly licenses: {
    readonly jti: string;
    readonly name: string;
    readonly type: string;
    readonly issued_at: number;
    readonly expires_at: number;
    readonly issued_by: string;
    readonly consumed_at: number | null;
  };
};

export function licenseStore(executor: Executor): LicenseStore {
  const db = executor.$extendTables<LicenseTables>();
  return {
    async add({ jti, name, type, iat, exp }, user) {
      await db
        .insertInto("licenses")
        .values({ jti, name, type, issued_at: Math.floor(iat), expires_at: Math.floor(exp), issued_by: user })
        .execute();
    },
    async consume(jti, nowSeconds) {
      await db
        .updateTable("licenses")
        .set({ consumed_at: Math.floor(nowSeconds) })
        .where("jti", "=", jti)
        .execute();
    },
    async prune(nowSeconds) {
      await db
        .deleteFrom("licenses")
        .where("expires_at", "<", Math.floor(nowSeconds - KEPT_SECONDS))
        .execute();
    },
  };
}
