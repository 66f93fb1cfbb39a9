import { createHash, timingSafeEqual } from "node:crypto";
import type { Selectable } from "kysely";
import { z } from "zod";
import { InputError } from "../../errors.ts";
import { json } from "../store/columns.ts";
import type { Executor } from "../store/database.ts";
import { statement } from "../store/statement.ts";
import { Policy, type Grant } from "./policies/policy.ts";

/** A machine account; `createdAt` in Unix seconds. */
export interface ServiceUser {
  readonly name: string;
  readonly policies: readonly string[];
  readonly createdAt: number;
  readonly clientId: string | undefined;
}

const MAX_POLICIES = 10_000;
const MAX_SERVICE_USERS = 10_000;
const UNKNOWN_SECRET = "0".repeat(64);

const Policies = z.array(Policy);

/**
 * API keys, policies, service users and their credentials. Of every secret only the SHA-256 is stored. What checks before it writes
 * needs a transaction.
 */
export interface AccessStore {
  /** Stores or replaces an API key by name; `sha256` in hexadecimal. Its policies belong to it alone and are not listed. */
  putApiKey(name: string, sha256: string, policies: readonly Policy[]): Promise<void>;
  /** Returns the holder of an API key. */
  findApiKey(key: string): Promise<Grant | undefined>;
  /** Returns the current policies of a user, or of the API key with this name; undefined if neither exists. */
  grantOf(name: string): Promise<Grant | undefined>;
  policies(): Promise<readonly Policy[]>;
  policy(name: string): Promise<Policy | undefined>;
  /** @throws {InputError} `name-taken`; `busy` at the limit of 10,000 */
  createPolicy(policy: Policy): Promise<void>;
  /** @throws {InputError} `not-found` */
  replacePolicy(policy: Policy): Promise<void>;
  /** @throws {InputError} `not-found`; `policy-in-use` while attached to a service user */
  deletePolicy(name: string): Promise<void>;
  serviceUsers(): Promise<readonly ServiceUser[]>;
  serviceUser(name: string): Promise<ServiceUser | undefined>;
  /** @throws {InputError} `name-taken`; `not-found` for an unknown policy; `busy` at the limit of 10,000 */
  createServiceUser(name: string, policies: readonly string[], createdAt: number): Promise<ServiceUser>;
  /** Sets the credential of a service user, replacing an earlier one. @throws {InputError} `not-found` */
  putCredential(name: string, clientId: string, secretSha256: string): Promise<void>;
  /** Returns the name of the service user with this client identifier and secret. */
  checkCredential(clientId: string, secret: string): Promise<string | undefined>;
  /** Returns the policies of a service user while this client identifier is its credential. */
  findServiceUser(name: string, clientId: string): Promise<Grant | undefined>;
}

type AccessTables = {
  readonly api_key: { readonly name: string; readonly sha256: string; readonly policies: string };
  readonly policy: { readonly name: string; readonly body: string };
  readonly service_user: {
    readonly name: string;
    readonly created_at: number;
    readonly client_id: string | null;
    readonly secret_sha256: string | null;
  };
  readonly service_user_policy: { readonly service_user: string; readonly policy: string };
};

const API_KEY = statement<{ readonly sha256: string }>()((db, value) =>
  db
    .$extendTables<AccessTables>()
    .selectFrom("api_key")
    .select(["name", "sha256", "policies"])
    .where("sha256", "=", value("sha256")),
);

export function accessStore(executor: Executor): AccessStore {
  const db = executor.$extendTables<AccessTables>();
  const policies = db.selectFrom("policy").select("body");
  const users = db.selectFrom("service_user").select(["name", "created_at", "client_id"]);
  const attachments = db.selectFrom("service_user_policy").select(["service_user", "policy"]).orderBy("policy");

  const apiKeyOf = (name: string) =>
    db.selectFrom("api_key").select(["name", "policies"]).where("name", "=", name).executeTakeFirst();
  const policy = async (name: string): Promise<Policy | undefined> => {
    const row = await policies.where("name", "=", name).executeTakeFirst();
    return row === undefined ? undefined : json(row, "body", Policy);
  };
  const serviceUser = async (name: string): Promise<ServiceUser | undefined> => {
    const row = await users.where("name", "=", name).executeTakeFirst();
    if (row === undefined) return undefined;
    return serviceUserOf(row, await attachments.where("service_user", "=", name).execute());
  };
  const policiesOf = async (user: string): Promise<readonly Policy[]> => {
    const rows = await db
      .selectFrom("policy")
      .innerJoin("service_user_policy", "service_user_policy.policy", "policy.name")
      .select("policy.body")
      .where("service_user_policy.service_user", "=", user)
      .orderBy("policy.name")
      .execute();
    return rows.map((row) => json(row, "body", Policy));
  };
  const checkLimit = async (table: "policy" | "service_user", most: number): Promise<void> => {
    const row = await db
      .selectFrom(table)
      .select((eb) => eb.fn.countAll<number>().as("total"))
      .executeTakeFirst();
    if ((row?.total ?? 0) < most) return;
    throw new InputError("busy", `the limit of ${most} rows of ${table} is reached; delete some first`);
  };

  return {
    policy,
    serviceUser,
    async putApiKey(name, sha256, list) {
      const row = { sha256, policies: JSON.stringify(list) };
      await db
        .insertInto("api_key")
        .values({ name, ...row })
        .onConflict((conflict) => conflict.column("name").doUpdateSet(row))
        .execute();
    },
    async findApiKey(key) {
      const digest = sha256Hex(key);
      const [row] = (await API_KEY(executor, { sha256: digest })).rows;
      if (row === undefined || !equalHex(row.sha256, digest)) return undefined;
      return { name: row.name, policies: json(row, "policies", Policies) };
    },
    async grantOf(name) {
      const key = await apiKeyOf(name);
      if (key !== undefined) return { name, policies: json(key, "policies", Policies) };
      const user = await users.where("name", "=", name).executeTakeFirst();
      return user === undefined ? undefined : { name, policies: await policiesOf(name) };
    },
    policies: async () => (await policies.orderBy("name").execute()).map((row) => json(row, "body", Policy)),
    async createPolicy(created) {
      if ((await policy(created.name)) !== undefined) throw taken(`policy ${created.name}`);
      await checkLimit("policy", MAX_POLICIES);
      await db
        .insertInto("policy")
        .values({ name: created.name, body: JSON.stringify(created) })
        .execute();
    },
    async replacePolicy(replacement) {
      const { numUpdatedRows } = await db
        .updateTable("policy")
        .set({ body: JSON.stringify(replacement) })
        .where("name", "=", replacement.name)
        .executeTakeFirst();
      if (numUpdatedRows === 0n) throw notFound(`policy ${replacement.name}`);
    },
    async deletePolicy(name) {
      const [holder] = await attachments.where("policy", "=", name).limit(1).execute();
      if (holder !== undefined) {
        const user = holder.service_user;
        throw new InputError("policy-in-use", `policy ${name} is attached to ${user}`, { details: { user } });
      }
      const { numDeletedRows } = await db.deleteFrom("policy").where("name", "=", name).executeTakeFirst();
      if (numDeletedRows === 0n) throw notFound(`policy ${name}`);
    },
    async serviceUsers() {
      const rows = await users.orderBy("name").execute();
      const attached = Map.groupBy(await attachments.execute(), ({ service_user: user }) => user);
      return rows.map((row) => serviceUserOf(row, attached.get(row.name) ?? []));
    },
    async createServiceUser(name, attached, createdAt) {
      if ((await serviceUser(name)) !== undefined) throw taken(`service user ${name}`);
      // The audit trail does not distinguish the two.
      if ((await apiKeyOf(name)) !== undefined) throw taken(`API key ${name}`);
      await checkLimit("service_user", MAX_SERVICE_USERS);
      await db.insertInto("service_user").values({ name, created_at: createdAt }).execute();
      const names = [...new Set(attached)].sort();
      for (const one of names) {
        if ((await policy(one)) === undefined) throw notFound(`policy ${one}`);
        await db.insertInto("service_user_policy").values({ service_user: name, policy: one }).execute();
      }
      return { name, policies: names, createdAt, clientId: undefined };
    },
    async putCredential(name, clientId, secretSha256) {
      const { numUpdatedRows } = await db
        .updateTable("service_user")
        .set({ client_id: clientId, secret_sha256: secretSha256 })
        .where("name", "=", name)
        .executeTakeFirst();
      if (numUpdatedRows === 0n) throw notFound(`service user ${name}`);
    },
    async checkCredential(clientId, secret) {
      const row = await db
        .selectFrom("service_user")
        .select(["name", "secret_sha256"])
        .where("client_id", "=", clientId)
        .executeTakeFirst();
      // An unknown client takes as much time as a wrong secret.
      const isRight = equalHex(row?.secret_sha256 ?? UNKNOWN_SECRET, sha256Hex(secret));
      return isRight ? row?.name : undefined;
    },
    async findServiceUser(name, clientId) {
      const row = await users.where("name", "=", name).where("client_id", "=", clientId).executeTakeFirst();
      return row === undefined ? undefined : { name, policies: await policiesOf(name) };
    },
  };
}

/** Returns the SHA-256 of a text, in hexadecimal. */
export function sha256Hex(secret: string): string {
  return createHash("sha256").update(secret, "utf8").digest("hex");
}

function equalHex(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a, "hex"), Buffer.from(b, "hex")];
  return left.length === right.length && timingSafeEqual(left, right);
}

function serviceUserOf(
  row: Pick<Selectable<AccessTables["service_user"]>, "name" | "created_at" | "client_id">,
  attached: readonly { readonly policy: string }[],
): ServiceUser {
  return {
    name: row.name,
    policies: attached.map(({ policy }) => policy),
    createdAt: row.created_at,
    clientId: row.client_id ?? undefined,
  };
}

const taken = (object: string): InputError =>
  new InputError("name-taken", `${object} already exists`, { details: { field: "name" } });
const notFound = (object: string): InputError => new InputError("not-found", `there is no ${object}`);
