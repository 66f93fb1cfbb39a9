import { randomBytes, randomUUID, timingSafeEqual } from "node:crypto";
import { InputError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import { agentTokenText } from "../../../protocol/channel/activation.ts";
import type { TokenUseClaims } from "../../../protocol/documents/claims.ts";
import { peekClaims, verifyJws } from "../../../protocol/channel/jws.ts";
import { thumbprint } from "../../../protocol/values/keys.ts";
import type { NodeType } from "../../../protocol/values/values.ts";
import type { EventLog, EventParts } from "../../events/service.ts";
import type { Transact } from "../../store/transact.ts";
import { ORGANIZATION } from "../policies/permissions.ts";
import { sha256Hex, type AccessStore } from "../store.ts";
import type { StoredAgentToken } from "./store.ts";
import type { AgentTokenStore } from "./store.ts";
import { isAllowed } from "../policies/verdict.ts";

/** Stores of an open transaction that changes agent tokens. */
export interface AgentTokenParts extends EventParts {
  readonly agentTokens: AgentTokenStore;
  readonly access: Pick<AccessStore, "grantOf">;
}

export interface AgentTokensDeps<Parts extends AgentTokenParts> {
  readonly store: Transact<Parts> & { readonly agentTokens: AgentTokenStore };
  readonly events: Pick<EventLog, "change">;
  readonly keys: { readonly rootThumbprint: string; readonly newest: { readonly spki: readonly string[] } };
  readonly clock: Clock;
  readonly origin: string;
  /** Issues a license in a transaction. */
  readonly issue: (
    tx: Parts,
    request: { name: string; type: NodeType; jkt: string; user: string; lifetimeSeconds: number },
  ) => Promise<string>;
}

/** Agents that a new token registers. */
export type TokenOrder =
  | { readonly name: string; readonly expiresInSeconds: number }
  | { readonly namePrefix: string; readonly maxUses: number; readonly expiresInSeconds: number };

const MAX_TOKENS = 1000;
/** Lifetime of a token's license: it is used at once, and a short one limits what a revoked token leaves behind. */
const LICENSE_SECONDS = 15 * 60;

/** Permission that a user needs to create a token, and at each use of it. */
export const TOKEN_PERMISSION = { permissions: ["nodes::manage"], resource: ORGANIZATION } as const;

/** Tokens that give agents on users' devices a license. A token has the current permissions of its creator. */
export class AgentTokens<Parts extends AgentTokenParts = AgentTokenParts> {
  readonly #deps: AgentTokensDeps<Parts>;

  constructor(deps: AgentTokensDeps<Parts>) {
    this.#deps = deps;
  }

  all(): Promise<readonly StoredAgentToken[]> {
    return this.#deps.store.agentTokens.all();
  }

  /** Creates a token, and records it; its text is not stored. @throws {InputError} `busy` */
  async create(
    order: TokenOrder,
    user: string,
  ): Promise<{ readonly token: string; readonly stored: StoredAgentToken }> {
    const { store, events, keys, clock, origin } = this.#deps;
    const id = randomUUID();
    const secret = randomBytes(32).toString("base64url");
    const createdAt = Math.floor(clock.now() / 1000);
    const stored = {
      id,
      secretSha256: sha256Hex(secret),
      name: "name" in order ? order.name : undefined,
      namePrefix: "name" in order ? undefined : order.namePrefix,
      maxUses: "name" in order ? 1 : order.maxUses,
      createdAt,
      expiresAt: createdAt + order.expiresInSeconds,
      createdBy: user,
    };
    const subject = "name" in order ? `agent ${order.name}` : `${order.maxUses} agents ${order.namePrefix}-*`;
    await store.transact(async (tx) => {
      if ((await tx.agentTokens.count()) >= MAX_TOKENS) {
        throw new InputError("busy", `the limit of ${MAX_TOKENS} agent tokens is reached; delete some first`);
      }
      await tx.agentTokens.add(stored);
      await events.change(tx, undefined, user, `Agent token created for ${subject}`, {
        action: "create",
        type: "agentToken",
        id,
      });
    });
    const token = agentTokenText({ iss: origin, root: keys.rootThumbprint, spki: [...keys.newest.spki], id, secret });
    return { token, stored: { ...stored, uses: 0 } };
  }

  /** Revokes a token, and records it. @throws {InputError} `not-found` */
  remove(id: string, user: string): Promise<void> {
    const { store, events } = this.#deps;
    return store.transact(async (tx) => {
      if (!(await tx.agentTokens.remove(id))) throw new InputError("not-found", `there is no agent token ${id}`);
      await events.change(tx, undefined, user, `Agent token ${id} revoked`, {
        action: "delete",
        type: "agentToken",
        id,
      });
    });
  }

  /**
   * Exchanges a token for a license bound to the requesting key; the same key gets the same license again.
   * @throws {InputError} `bad-signature` for an invalid token, `token-expired`, `token-used`, `name-taken`
   */
  async exchange(jws: string): Promise<{ readonly license: string }> {
    const { claims, key } = await this.#verify(jws);
    return { license: await this.#deps.store.transact((tx) => this.#license(tx, claims, key)) };
  }

  /** Returns the license that a key has by a token, or issues it for one use of the token. */
  async #license(tx: Parts, claims: TokenUseClaims, key: string): Promise<string> {
    const token = await valid(tx, claims);
    const { id, createdBy: user } = token;
    const earlier = await tx.agentTokens.use(id, key);
    if (earlier?.license !== undefined) return earlier.license;
    const now = this.#deps.clock.now() / 1000;
    if (token.expiresAt <= now) throw new InputError("token-expired", "the token has expired");
    if (earlier === undefined && token.uses >= token.maxUses) {
      throw new InputError("token-used", "the token has no uses left");
    }
    const name = token.name ?? `${token.namePrefix ?? "agent"}-${sha256Hex(`${id} ${key}`).slice(0, 10)}`;
    const request = { name, type: "Agent", jkt: key, user, lifetimeSeconds: LICENSE_SECONDS } as const;
    const license = await this.#deps.issue(tx, request);
    await tx.agentTokens.putUse(id, { key, name, license });
    return license;
  }

  async #verify(jws: string): Promise<{ readonly claims: TokenUseClaims; readonly key: string }> {
    const { keys } = peekClaims("holdfast-token-use+jwt", jws);
    const key = await thumbprint(keys.auth);
    const claims = await verifyJws("holdfast-token-use+jwt", jws, new Map([[key, keys.auth]]));
    if (claims.aud !== this.#deps.origin) throw new InputError("bad-signature", `aud: must be ${this.#deps.origin}`);
    return { claims, key };
  }
}

/** Returns the token with this id and secret, if its creator may still create one. */
async function valid(
  { agentTokens, access }: AgentTokenParts,
  { id, secret }: TokenUseClaims,
): Promise<StoredAgentToken> {
  const token = await agentTokens.get(id);
  const expected = Buffer.from(token?.secretSha256 ?? sha256Hex(""), "hex");
  const isRight = timingSafeEqual(Buffer.from(sha256Hex(secret), "hex"), expected);
  if (token === undefined || !isRight) throw unknown();
  const policies = (await access.grantOf(token.createdBy))?.policies ?? [];
  if (!isAllowed(policies, TOKEN_PERMISSION.permissions, { name: TOKEN_PERMISSION.resource })) throw unknown();
  return token;
}

const unknown = (): InputError => new InputError("bad-signature", "the token is unknown or was revoked");
