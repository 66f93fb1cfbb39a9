import { hash, timingSafeEqual } from "node:crypto";
import type { Generated, Selectable } from "kysely";
import { z } from "zod";
import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { json, maybeJson, ParsedTexts, storable } from "../store/columns.ts";
import type { Executor } from "../store/database.ts";
import { statement } from "../store/statement.ts";
import { builtinPolicies } from "./policies/builtin.ts";
import { Policy, type Grant } from "./policies/policy.ts";

/** A machine account; `createdAt` in Unix seconds. */
export interface ServiceUser {
  readonly name: string;
  /** Names in the order in which they were given; a name without a policy has no effect. */
  readonly policies: readonly string[];
  /** An inactive user is refused, with every credential and token. */
  readonly isActive: boolean;
  readonly createdAt: number;
  readonly clientId: string | undefined;
  /** Time of the newest credential, in Unix seconds. */
  readonly tokenCreatedAt: number | undefined;
}

/** A new credential of a service user. */
export interface NewCredential {
  readonly clientId: string;
  readonly secretSha256: string;
  /** Unix milliseconds. */
  readonly now: number;
  /** Milliseconds for which the credential that it replaces stays valid; one that was replaced before ends at once. */
  readonly overlapMs: number;
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
  /** Returns the policies of an active or inactive holder; undefined if it does not exist. */
  policiesOf(name: string, holder: "api-key" | "service-user"): Promise<readonly Policy[] | undefined>;
  /** Returns all policies by name, with the built-in ones. */
  policies(): Promise<readonly Policy[]>;
  policy(name: string): Promise<Policy | undefined>;
  /** @throws {InputError} `name-taken`; `busy` at the limit of 10,000 */
  createPolicy(policy: Policy): Promise<void>;
  /** @throws {InputError} `not-found` */
  replacePolicy(policy: Policy): Promise<void>;
  /** Deletes a policy; its name stays with those that it is attached to, without effect. @throws {InputError} `not-found` */
  deletePolicy(name: string): Promise<void>;
  serviceUsers(): Promise<readonly ServiceUser[]>;
  serviceUser(name: string): Promise<ServiceUser | undefined>;
  /** @throws {InputError} `name-taken`; `busy` at the limit of 10,000 */
  createServiceUser(
    name: string,
    policies: readonly string[],
    createdAt: number,
    isActive?: boolean,
  ): Promise<ServiceUser>;
  /** @throws {InputError} `not-found` */
  changeServiceUser(
    name: string,
    change: { readonly policies: readonly string[]; readonly isActive: boolean },
  ): Promise<ServiceUser>;
  /** Deletes a service user with its credentials. @throws {InputError} `not-found` */
  deleteServiceUser(name: string): Promise<void>;
  /** Sets the credential of a service user. @throws {InputError} `not-found` */
  putCredential(name: string, credential: NewCredential): Promise<void>;
  /** Returns the name of the active service user with this client identifier and secret. */
  checkCredential(clientId: string, secret: string): Promise<string | undefined>;
  /** Returns the policies of an active service user while this client identifier is one of its credentials. */
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
    readonly is_inactive: Generated<number>;
    readonly token_created: number | null;
    readonly previous_client_id: string | null;
    readonly previous_secret_sha256: string | null;
    readonly previous_until_ms: number | null;
  };
  readonly attached_policy: { readonly service_user: string; readonly position: number; readonly policy: string };
};

const API_KEY = statement<{ readonly sha256: string }>()((db, value) =>
  db
    .$extendTables<AccessTables>()
    .selectFrom("api_key")
    .select(["name", "sha256", "policies"])
    .where("sha256", "=", value("sha256")),
);

export function accessStore(executor: Executor, clock: Pick<Clock, "now">): AccessStore {
  const db = executor.$extendTables<AccessTables>();
  const policies = db.selectFrom("policy").select("body");
  const policiesOfKeys = new ParsedTexts("policies", Policies);
  const users = db
    .selectFrom("service_user")
    .select(["name", "created_at", "client_id", "is_inactive", "token_created"]);
  const attachments = db.selectFrom("attached_policy").select(["service_user", "policy"]).orderBy("position");
  /** The active service user whose newest credential, or earlier one within its time, has this client identifier. */
  const holder = async (clientId: string) => {
    const current = await db
      .selectFrom("service_user")
      .select(["name", "secret_sha256 as secret"])
      .where("client_id", "=", storable(clientId))
      .where("is_inactive", "=", 0)
      .executeTakeFirst();
    if (current !== undefined) return current;
    return db
      .selectFrom("service_user")
      .select(["name", "previous_secret_sha256 as secret"])
      .where("previous_client_id", "=", storable(clientId))
      .where("previous_until_ms", ">", Math.floor(clock.now()))
      .where("is_inactive", "=", 0)
      .executeTakeFirst();
  };
  const attach = async (user: string, names: readonly string[]): Promise<void> => {
    await db.deleteFrom("attached_policy").where("service_user", "=", user).execute();
    if (names.length === 0) return;
    const rows = names.map((name, position) => ({ service_user: user, position, policy: name }));
    await db.insertInto("attached_policy").values(rows).execute();
  };

  const apiKeyOf = (name: string) =>
    db.selectFrom("api_key").select(["name", "policies"]).where("name", "=", name).executeTakeFirst();
  const policy = async (name: string): Promise<Policy | undefined> => {
    const builtin = builtinPolicies.get(name);
    if (builtin !== undefined) return builtin;
    const row = await policies.where("name", "=", name).executeTakeFirst();
    return row === undefined ? undefined : json(row, "body", Policy);
  };
  const serviceUser = async (name: string): Promise<ServiceUser | undefined> => {
    const row = await users.where("name", "=", name).executeTakeFirst();
    if (row === undefined) return undefined;
    return serviceUserOf(row, await attachments.where("service_user", "=", name).execute());
  };
  const attachedTo = async (user: string): Promise<readonly Policy[]> => {
    const rows = await db
      .selectFrom("attached_policy")
      .leftJoin("policy", "policy.name", "attached_policy.policy")
      .select(["attached_policy.policy as name", "policy.body"])
      .where("attached_policy.service_user", "=", user)
      .orderBy("attached_policy.position")
      .execute();
    return rows.flatMap((row) => builtinPolicies.get(row.name) ?? maybeJson(row, "body", Policy) ?? []);
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
      return { name: row.name, policies: policiesOfKeys.of(row.policies) };
    },
    async grantOf(name) {
      const key = await apiKeyOf(name);
      if (key !== undefined) return { name, policies: policiesOfKeys.of(key.policies) };
      const user = await users.where("name", "=", name).where("is_inactive", "=", 0).executeTakeFirst();
      return user === undefined ? undefined : { name, policies: await attachedTo(name) };
    },
    async policiesOf(name, kind) {
      if (kind === "service-user") return (await serviceUser(name)) === undefined ? undefined : attachedTo(name);
      const key = await apiKeyOf(name);
      return key === undefined ? undefined : policiesOfKeys.of(key.policies);
    },
    async policies() {
      const stored = (await policies.execute()).map((row) => json(row, "body", Policy));
      return [...builtinPolicies.values(), ...stored].sort((a, b) => (a.name < b.name ? -1 : 1));
    },
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
      const { numDeletedRows } = await db.deleteFrom("policy").where("name", "=", name).executeTakeFirst();
      if (numDeletedRows === 0n) throw notFound(`policy ${name}`);
    },
    async serviceUsers() {
      const rows = await users.orderBy("name").execute();
      const attached = Map.groupBy(await attachments.execute(), ({ service_user: user }) => user);
      return rows.map((row) => serviceUserOf(row, attached.get(row.name) ?? []));
    },
    async createServiceUser(name, attached, createdAt, isActive = true) {
      if ((await serviceUser(name)) !== undefined) throw taken(`service user ${name}`);
      // The audit trail does not distinguish the two.
      if ((await apiKeyOf(name)) !== undefined) throw taken(`API key ${name}`);
      await checkLimit("service_user", MAX_SERVICE_USERS);
      await db
        .insertInto("service_user")
        .values({ name, created_at: createdAt, is_inactive: isActive ? 0 : 1 })
        .execute();
      await attach(name, attached);
      return { name, policies: attached, isActive, createdAt, clientId: undefined, tokenCreatedAt: undefined };
    },
    async changeServiceUser(name, { policies: wanted, isActive }) {
      const { numUpdatedRows } = await db
        .updateTable("service_user")
        .set({ is_inactive: isActive ? 0 : 1 })
        .where("name", "=", name)
        .executeTakeFirst();
      if (numUpdatedRows === 0n) throw notFound(`service user ${name}`);
      await attach(name, wanted);
      const changed = await serviceUser(name);
      if (changed === undefined) throw notFound(`service user ${name}`);
      return changed;
    },
    async deleteServiceUser(name) {
      const { numDeletedRows } = await db.deleteFrom("service_user").where("name", "=", name).executeTakeFirst();
      if (numDeletedRows === 0n) throw notFound(`service user ${name}`);
    },
    async putCredential(name, { clientId, secretSha256, now, overlapMs }) {
      const { numUpdatedRows } = await db
        .updateTable("service_user")
        .set((eb) => ({
          previous_client_id: overlapMs > 0 ? eb.ref("client_id") : null,
          previous_secret_sha256: overlapMs > 0 ? eb.ref("secret_sha256") : null,
          previous_until_ms: overlapMs > 0 ? Math.floor(now) + overlapMs : null,
          client_id: clientId,
          secret_sha256: secretSha256,
          token_created: Math.floor(now / 1000),
        }))
        .where("name", "=", name)
        .executeTakeFirst();
      if (numUpdatedRows === 0n) throw notFound(`service user ${name}`);
    },
    async checkCredential(clientId, secret) {
      const found = await holder(clientId);
      // An unknown client takes as much time as a wrong secret.
      const isRight = equalHex(found?.secret ?? UNKNOWN_SECRET, sha256Hex(secret));
      return isRight ? found?.name : undefined;
    },
    async findServiceUser(name, clientId) {
      const found = await holder(clientId);
      return found?.name === name ? { name, policies: await attachedTo(name) } : undefined;
    },
  };
}

/** Returns the SHA-256 of a text, in hexadecimal. */
export function sha256Hex(secret: string): string {
  return hash("sha256", secret);
}

function equalHex(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a, "hex"), Buffer.from(b, "hex")];
  return left.length === right.length && timingSafeEqual(left, right);
}

function serviceUserOf(
  row: Pick<
    Selectable<AccessTables["service_user"]>,
    "name" | "created_at" | "client_id" | "is_inactive" | "token_created"
  >,
  attached: readonly { readonly policy: string }[],
): ServiceUser {
  return {
    name: row.name,
    policies: attached.map(({ policy }) => policy),
    isActive: row.is_inactive === 0,
    createdAt: row.created_at,
    clientId: row.client_id ?? undefined,
    tokenCreatedAt: row.token_created ?? undefined,
  };
}

const taken = (object: string): InputError =>
  new InputError("name-taken", `${object} already exists`, { details: { field: "name" } });
const notFound = (object: string): InputError => new InputError("not-found", `there is no ${object}`);
