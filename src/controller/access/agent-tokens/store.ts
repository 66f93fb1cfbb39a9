import type { DatabaseSync } from "node:sqlite";
import { maybeText, number, text, type Row } from "../../store/rows.ts";

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
  /** Undefined while the license is being issued. */
  readonly license: string | undefined;
}

/** Agent tokens; removing one removes its uses. */
export interface AgentTokenStore {
  all(): readonly StoredAgentToken[];
  get(id: string): StoredAgentToken | undefined;
  count(): number;
  add(token: Omit<StoredAgentToken, "uses">): void;
  /** Returns false if there is none. */
  remove(id: string): boolean;
  use(id: string, key: string): TokenUse | undefined;
  /** Reserves one use of a token for a key. */
  take(id: string, key: string, name: string): void;
  /** Stores the license of a use. */
  licensed(id: string, key: string, license: string): void;
  /** Releases a use for which no license was issued. */
  release(id: string, key: string): void;
  prune(nowSeconds: number): void;
}

const KEPT_SECONDS = 30 * 24 * 3600;

export function agentTokenStore(sql: DatabaseSync): AgentTokenStore {
  const columns = "*, (SELECT count(*) FROM agent_token_uses WHERE token = id) AS uses";
  const all = sql.prepare(`SELECT ${columns} FROM agent_tokens ORDER BY created_at, id`);
  const one = sql.prepare(`SELECT ${columns} FROM agent_tokens WHERE id = ?`);
  const count = sql.prepare("SELECT count(*) AS n FROM agent_tokens");
  const add = sql.prepare("INSERT INTO agent_tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
  const remove = sql.prepare("DELETE FROM agent_tokens WHERE id = ?");
  const use = sql.prepare("SELECT * FROM agent_token_uses WHERE token = ? AND key = ?");
  const take = sql.prepare("INSERT INTO agent_token_uses (token, key, name) VALUES (?, ?, ?)");
  const licensed = sql.prepare("UPDATE agent_token_uses SET license = ? WHERE token = ? AND key = ?");
  const release = sql.prepare("DELETE FROM agent_token_uses WHERE token = ? AND key = ?");
  const prune = sql.prepare("DELETE FROM agent_tokens WHERE expires_at < ?");
  return {
    all: () => all.all().map(read),
    get(id) {
      const row = one.get(id);
      return row === undefined ? undefined : read(row);
    },
    count() {
      const row = count.get();
      return row === undefined ? 0 : number(row, "n");
    },
    add: ({ id, secretSha256, name, namePrefix, maxUses, createdAt, expiresAt, createdBy }) =>
      void add.run(id, secretSha256, name ?? null, namePrefix ?? null, maxUses, createdAt, expiresAt, createdBy),
    remove: (id) => remove.run(id).changes > 0,
    use(id, key) {
      const row = use.get(id, key);
      if (row === undefined) return undefined;
      return { key: text(row, "key"), name: text(row, "name"), license: maybeText(row, "license") };
    },
    take: (id, key, name) => void take.run(id, key, name),
    licensed: (id, key, license) => void licensed.run(license, id, key),
    release: (id, key) => void release.run(id, key),
    prune: (nowSeconds) => void prune.run(Math.floor(nowSeconds - KEPT_SECONDS)),
  };
}

function read(row: Row): StoredAgentToken {
  return {
    id: text(row, "id"),
    secretSha256: text(row, "secret_sha256"),
    name: maybeText(row, "name"),
    namePrefix: maybeText(row, "name_prefix"),
    maxUses: number(row, "max_uses"),
    uses: number(row, "uses"),
    createdAt: number(row, "created_at"),
    expiresAt: number(row, "expires_at"),
    createdBy: text(row, "created_by"),
  };
}
