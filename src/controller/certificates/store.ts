import type { Selectable } from "kysely";
import { z } from "zod";
import { word } from "../store/columns.ts";
import type { Executor } from "../store/database.ts";
import { WARNINGS, type CertificateRecord } from "./records.ts";

/** Certificates and their private keys. */
export interface CertificateStore {
  /** Sorted by name. */
  all(): Promise<readonly CertificateRecord[]>;
  get(fqdn: string): Promise<CertificateRecord | undefined>;
  /** Adds a certificate, or replaces the one with this name. */
  put(certificate: CertificateRecord): Promise<void>;
  remove(fqdn: string): Promise<void>;
}

type CertificateTables = {
  readonly certificates: {
    readonly fqdn: string;
    readonly chain: string;
    readonly private_key: string;
    readonly reported: string;
  };
};

const Reported = z.enum(WARNINGS);

export function certificateStore(executor: Executor): CertificateStore {
  const db = executor.$extendTables<CertificateTables>();
  const stored = db.selectFrom("certificates").selectAll();
  return {
    all: async () => (await stored.orderBy("fqdn").execute()).map(read),
    async get(fqdn) {
      const row = await stored.where("fqdn", "=", fqdn).executeTakeFirst();
      return row === undefined ? undefined : read(row);
    },
    async put({ fqdn, chain, privateKey, reported }) {
      const row = { chain, private_key: privateKey, reported };
      await db
        .insertInto("certificates")
        .values({ fqdn, ...row })
        .onConflict((conflict) => conflict.column("fqdn").doUpdateSet(row))
        .execute();
    },
    async remove(fqdn) {
      await db.deleteFrom("certificates").where("fqdn", "=", fqdn).execute();
    },
  };
}

function read(row: Selectable<CertificateTables["certificates"]>): CertificateRecord {
  return { fqdn: row.fqdn, chain: row.chain, privateKey: row.private_key, reported: word(row, "reported", Reported) };
}
