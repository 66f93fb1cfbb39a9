import { createHash, timingSafeEqual } from "node:crypto";
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { InputError } from "../../errors.ts";
import { atomic } from "../../host/files/database.ts";
import type { Policy, Grant } from "./policies/policy.ts";

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

/** API keys, policies, service users and their credentials. Of every secret only the SHA-256 is stored. */
export class AccessStore {
  readonly #sql: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  /** `sql` must have `accessMigration` applied. */
  constructor(sql: DatabaseSync) {
    this.#sql = sql;
  }

  /** Stores or replaces an API key by name; `sha256` in hexadecimal. Its policies belong to it alone and are not listed. */
  putApiKey(name: string, sha256: string, policies: readonly Policy[]): void {
    const text = JSON.stringify(policies);
    this.#run("INSERT OR REPLACE INTO api_key (name, sha256, policies) VALUES (?, ?, ?)", name, sha256, text);
  }

  /** Returns the holder of an API key. */
  findApiKey(key: string): Grant | undefined {
    const digest = sha256Hex(key);
    const row = this.#get("SELECT name, sha256, policies FROM api_key WHERE sha256 = ?", digest);
    if (row === undefined || !equalHex(text(row["sha256"]), digest)) return undefined;
    return { name: text(row["name"]), policies: JSON.parse(text(row["policies"])) as Policy[] };
  }

  /** Returns the current policies of a user, or of the API key with this name; undefined if neither exists. */
  grantOf(name: string): Grant | undefined {
    const key = this.#get("SELECT policies FROM api_key WHERE name = ?", name);
    if (key !== undefined) return { name, policies: JSON.parse(text(key["policies"])) as Policy[] };
    const user = this.serviceUser(name);
    if (user === undefined) return undefined;
    return { name, policies: user.policies.flatMap((policy) => this.policy(policy) ?? []) };
  }

  policies(): Policy[] {
    return this.#all("SELECT body FROM policy ORDER BY name").map(policyOf);
  }

  policy(name: string): Policy | undefined {
    const row = this.#get("SELECT body FROM policy WHERE name = ?", name);
    return row === undefined ? undefined : policyOf(row);
  }

  /** @throws {InputError} `name-taken`; `busy` at the limit of 10,000 */
  createPolicy(policy: Policy): void {
    if (this.policy(policy.name) !== undefined) throw taken(`policy ${policy.name}`);
    this.#checkLimit("policy", MAX_POLICIES);
    this.#run("INSERT INTO policy (name, body) VALUES (?, ?)", policy.name, JSON.stringify(policy));
  }

  /** @throws {InputError} `not-found` */
  replacePolicy(policy: Policy): void {
    const changed = this.#run("UPDATE policy SET body = ? WHERE name = ?", JSON.stringify(policy), policy.name);
    if (changed === 0) throw notFound(`policy ${policy.name}`);
  }

  /** @throws {InputError} `not-found`; `policy-in-use` while attached to a service user */
  deletePolicy(name: string): void {
    const holder = this.#get("SELECT service_user FROM service_user_policy WHERE policy = ? LIMIT 1", name);
    if (holder !== undefined) {
      const user = text(holder["service_user"]);
      throw new InputError("policy-in-use", `policy ${name} is attached to ${user}`, { details: { user } });
    }
    if (this.#run("DELETE FROM policy WHERE name = ?", name) === 0) throw notFound(`policy ${name}`);
  }

  serviceUsers(): ServiceUser[] {
    const attached = new Map<string, string[]>();
    for (const row of this.#all("SELECT service_user, policy FROM service_user_policy ORDER BY policy")) {
      const user = text(row["service_user"]);
      attached.set(user, [...(attached.get(user) ?? []), text(row["policy"])]);
    }
    const rows = this.#all("SELECT name, created_at, client_id FROM service_user ORDER BY name");
    return rows.map((row) => serviceUserOf(row, attached.get(text(row["name"])) ?? []));
  }

  serviceUser(name: string): ServiceUser | undefined {
    const row = this.#get("SELECT name, created_at, client_id FROM service_user WHERE name = ?", name);
    if (row === undefined) return undefined;
    const attached = this.#all("SELECT policy FROM service_user_policy WHERE service_user = ? ORDER BY policy", name);
    return serviceUserOf(
      row,
      attached.map((line) => text(line["policy"])),
    );
  }

  /** @throws {InputError} `name-taken`; `not-found` for an unknown policy; `busy` at the limit of 10,000 */
  createServiceUser(name: string, policies: readonly string[], createdAt: number): ServiceUser {
    atomic(this.#sql, () => {
      if (this.serviceUser(name) !== undefined) throw taken(`service user ${name}`);
      // The audit trail does not distinguish the two.
      if (this.#get("SELECT name FROM api_key WHERE name = ?", name) !== undefined) throw taken(`API key ${name}`);
      this.#checkLimit("service_user", MAX_SERVICE_USERS);
      this.#run("INSERT INTO service_user (name, created_at) VALUES (?, ?)", name, createdAt);
      for (const policy of new Set(policies)) {
        if (this.policy(policy) === undefined) throw notFound(`policy ${policy}`);
        this.#run("INSERT INTO service_user_policy (service_user, policy) VALUES (?, ?)", name, policy);
      }
    });
    return { name, policies: [...new Set(policies)].sort(), createdAt, clientId: undefined };
  }

  /** Sets the credential of a service user, replacing an earlier one. @throws {InputError} `not-found` */
  putCredential(name: string, clientId: string, secretSha256: string): void {
    const sql = "UPDATE service_user SET client_id = ?, secret_sha256 = ? WHERE name = ?";
    if (this.#run(sql, clientId, secretSha256, name) === 0) throw notFound(`service user ${name}`);
  }

  /** Returns the name of the service user with this client identifier and secret. */
  checkCredential(clientId: string, secret: string): string | undefined {
    const row = this.#get("SELECT name, secret_sha256 FROM service_user WHERE client_id = ?", clientId);
    // An unknown client takes as much time as a wrong secret.
    const isRight = equalHex(row === undefined ? UNKNOWN_SECRET : text(row["secret_sha256"]), sha256Hex(secret));
    return isRight && row !== undefined ? text(row["name"]) : undefined;
  }

  /** Returns the policies of a service user while this client identifier is its credential. */
  findServiceUser(name: string, clientId: string): Grant | undefined {
    const row = this.#get("SELECT name FROM service_user WHERE name = ? AND client_id = ?", name, clientId);
    if (row === undefined) return undefined;
    const sql = "SELECT body FROM policy JOIN service_user_policy ON policy = name WHERE service_user = ?";
    return { name, policies: this.#all(sql, name).map(policyOf) };
  }

  #checkLimit(table: "policy" | "service_user", most: number): void {
    const count = Number(this.#get(`SELECT count(*) AS n FROM ${table}`)?.["n"] ?? 0);
    if (count >= most)
      throw new InputError("busy", `the limit of ${most} rows of ${table} is reached; delete some first`);
  }

  #get(sql: string, ...values: (string | number)[]): Record<string, unknown> | undefined {
    return this.#prepared(sql).get(...values);
  }

  #all(sql: string, ...values: (string | number)[]): Record<string, unknown>[] {
    return this.#prepared(sql).all(...values);
  }

  #run(sql: string, ...values: (string | number)[]): number {
    return Number(this.#prepared(sql).run(...values).changes);
  }

  #prepared(sql: string): StatementSync {
    const known = this.#statements.get(sql);
    if (known !== undefined) return known;
    const statement = this.#sql.prepare(sql);
    this.#statements.set(sql, statement);
    return statement;
  }
}

/** Returns the SHA-256 of a text, in hexadecimal. */
export function sha256Hex(secret: string): string {
  return createHash("sha256").update(secret, "utf8").digest("hex");
}

function equalHex(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a, "hex"), Buffer.from(b, "hex")];
  return left.length === right.length && timingSafeEqual(left, right);
}

function policyOf(row: Record<string, unknown>): Policy {
  // Only policies that passed the schema were stored.
  return JSON.parse(text(row["body"])) as Policy;
}

function serviceUserOf(row: Record<string, unknown>, policies: readonly string[]): ServiceUser {
  const clientId = row["client_id"];
  return {
    name: text(row["name"]),
    policies,
    createdAt: Number(row["created_at"]),
    clientId: typeof clientId === "string" ? clientId : undefined,
  };
}

const text = (value: unknown): string => (typeof value === "string" ? value : "");
const taken = (object: string): InputError =>
  new InputError("name-taken", `${object} already exists`, { details: { field: "name" } });
const notFound = (object: string): InputError => new InputError("not-found", `there is no ${object}`);
