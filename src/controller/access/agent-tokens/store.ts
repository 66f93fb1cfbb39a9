import type { Selectable } from "kysely";
import type { Executor } from "../../store/database.ts";

/** A stored token, with only the SHA-256 of its secret; times in Unix seconds. */
export interface StoredAgentToken {
  readonly id: string;
  readonly secretSha256: string;
  /** Name of the agent, if the token is for one. */
  readonly name: string | undefined;
  /** Name prefix of the agents, if the token is for several. */
  readonly namePrefix: string | undefined;
  readonly maxUses: number;
  readonly uses: number;
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly createdBy: string;
}

/** Use of a token by one agent. */
export interface TokenUse {
  readonly key: string;
  readonly name: string;
  /** Undefined if an earlier version ended while it issued the license. */
  readonly license: string | undefined;
}

/** Agent tokens; removing one removes its uses. */
export interface AgentTokenStore {
  all(): Promise<readonly StoredAgentToken[]>;
  get(id: string): Promise<StoredAgentToken | undefined>;
  count(): Promise<number>;
  add(token: Omit<StoredAgentToken, "uses">): Promise<void>;
  /** Returns false if there is none. */
  remove(id: string): Promise<boolean>;
  /** Removes the tokens that a user created. */
  removeOf(user: string): Promise<void>;
  use(id: string, key: string): Promise<TokenUse | undefined>;
  /** Stores the use of a token by a key, with its license. */
  putUse(id: string, use: TokenUse & { readonly license: string }): Promise<void>;
  prune(nowSeconds: number): Promise<void>;
}

const KEPT_SECONDS = 30 * 24 * 3600;

type AgentTokenTables = {
  readonly agent_tokens: {
    readonly id: string;
    readonly secret_sha256: string;
    readonly name: string | null;
    readonly name_prefix: string | null;
    readonly max_uses: number;
    readonly created_at: number;
    readonly expires_at: number;
    readonly created_by: string;
  };
  readonly agent_token_uses: {
    readonly token: string;
    readonly key: string;
    readonly name: string;
    readonly license: string | null;
  };
};

export function agentTokenStore(executor: Executor): AgentTokenStore {
  const db = executor.$extendTables<AgentTokenTables>();
  const tokens = db
    .selectFrom("agent_tokens")
    .selectAll()
    .select((eb) =>
      eb
        .selectFrom("agent_token_uses")
        .select((of) => of.fn.countAll<number>().as("uses"))
        .whereRef("agent_token_uses.token", "=", "agent_tokens.id")
        .as("uses"),
    );
  return {
    async all() {
      return (await tokens.orderBy("created_at").orderBy("id").execute()).map(read);
    },
    async get(id) {
      const row = await tokens.where("id", "=", id).executeTakeFirst();
      return row === undefined ? undefined : read(row);
    },
    async count() {
      const row = await db
        .selectFrom("agent_tokens")
        .select((eb) => eb.fn.countAll<number>().as("total"))
        .executeTakeFirst();
      return row?.total ?? 0;
    },
    async add({ id, secretSha256, name, namePrefix, maxUses, createdAt, expiresAt, createdBy }) {
      await db
        .insertInto("agent_tokens")
        .values({
          id,
          secret_sha256: secretSha256,
          name: name ?? null,
          name_prefix: namePrefix ?? null,
          max_uses: maxUses,
          created_at: createdAt,
          expires_at: expiresAt,
          created_by: createdBy,
        })
        .execute();
    },
    async remove(id) {
      const { numDeletedRows } = await db.deleteFrom("agent_tokens").where("id", "=", id).executeTakeFirst();
      return numDeletedRows > 0n;
    },
    async removeOf(user) {
      await db.deleteFrom("agent_tokens").where("created_by", "=", user).execute();
    },
    async use(id, key) {
      const row = await db
        .selectFrom("agent_token_uses")
        .select(["key", "name", "license"])
        .where("token", "=", id)
        .where("key", "=", key)
        .executeTakeFirst();
      return row === undefined ? undefined : { key: row.key, name: row.name, license: row.license ?? undefined };
    },
    async putUse(token, { key, name, license }) {
      await db
        .insertInto("agent_token_uses")
        .values({ token, key, name, license })
        .onConflict((conflict) => conflict.columns(["token", "key"]).doUpdateSet({ license }))
        .execute();
    },
    async prune(nowSeconds) {
      await db
        .deleteFrom("agent_tokens")
        .where("expires_at", "<", Math.floor(nowSeconds - KEPT_SECONDS))
        .execute();
    },
  };
}

function read(row: Selectable<AgentTokenTables["agent_tokens"]> & { readonly uses: number | null }): StoredAgentToken {
  return {
    id: row.id,
    secretSha256: row.secret_sha256,
    name: row.name ?? undefined,
    namePrefix: row.name_prefix ?? undefined,
    maxUses: row.max_uses,
    uses: row.uses ?? 0,
    createdAt: row.created_at,
    expiresAt: row.expires_at,
    createdBy: row.created_by,
  };
}
