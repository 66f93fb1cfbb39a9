import type { License } from "../../protocol/documents/claims.ts";
import type { Executor } from "../store/database.ts";

/** Issued licenses, kept for 30 days after they expire. Registration depends on the signature alone. */
export interface LicenseStore {
  add(license: License, user: string, orderID?: string): Promise<void>;
  /** Returns the order that the license was issued for. */
  consume(jti: string, nowSeconds: number): Promise<string | undefined>;
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
    readonly order_id: string | null;
  };
};

export function licenseStore(executor: Executor): LicenseStore {
  const db = executor.$extendTables<LicenseTables>();
  return {
    async add({ jti, name, type, iat, exp }, user, orderID) {
      await db
        .insertInto("licenses")
        .values({
          jti,
          name,
          type,
          issued_at: Math.floor(iat),
          expires_at: Math.floor(exp),
          issued_by: user,
          order_id: orderID ?? null,
        })
        .execute();
    },
    async consume(jti, nowSeconds) {
      await db
        .updateTable("licenses")
        .set({ consumed_at: Math.floor(nowSeconds) })
        .where("jti", "=", jti)
        .execute();
      const row = await db.selectFrom("licenses").select("order_id").where("jti", "=", jti).executeTakeFirst();
      return row?.order_id ?? undefined;
    },
    async prune(nowSeconds) {
      await db
        .deleteFrom("licenses")
        .where("expires_at", "<", Math.floor(nowSeconds - KEPT_SECONDS))
        .execute();
    },
  };
}
