import { randomBytes, randomUUID, timingSafeEqual } from "node:crypto";
import { InputError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import { agentTokenText } from "../../../protocol/channel/activation.ts";
import type { TokenUseClaims } from "../../../protocol/documents/claims.ts";
import { peekClaims, verifyJws } from "../../../protocol/channel/jws.ts";
import { thumbprint } from "../../../protocol/values/keys.ts";
import type { NodeType } from "../../../protocol/values/values.ts";
import { anyOf, tgrn } from "../policies/permissions.ts";
import { sha256Hex, type AccessStore } from "../store.ts";
import type { StoredAgentToken } from "./store.ts";
import type { AgentTokenStore } from "./store.ts";
import { isAllowed } from "../policies/verdict.ts";

export interface AgentTokensDeps {
  readonly store: { readonly agentTokens: AgentTokenStore };
  readonly access: Pick<AccessStore, "grantOf">;
  readonly keys: { readonly rootThumbprint: string; readonly newest: { readonly spki: readonly string[] } };
  readonly clock: Clock;
  readonly origin: string;
  readonly issue: (request: {
    name: string;
    type: NodeType;
    jkt: string;
    user: string;
    lifetimeSeconds: number;
  }) => Promise<string>;
}

/** Agents that a new token registers. */
export type TokenOrder =
  | { readonly name: string; readonly expiresInSeconds: number }
  | { readonly namePrefix: string; readonly maxUses: number; readonly expiresInSeconds: number };

const MAX_TOKENS = 1000;
/** Lifetime of a token's license: it is used at once, and a short one limits what a revoked token leaves behind. */
const LICENSE_SECONDS = 15 * 60;

/** Permission that a user needs to create a token, and at each use of it. */
export const TOKEN_PERMISSION = { permissions: ["nodes::manage"], resource: anyOf(tgrn.node("")) } as const;

/** Tokens that give agents on users' devices a license. A token has the current permissions of its creator. */
export class AgentTokens {
  readonly #deps: AgentTokensDeps;

  constructor(deps: AgentTokensDeps) {
    this.#deps = deps;
  }

  all(): readonly StoredAgentToken[] {
    return this.#deps.store.agentTokens.all();
  }

  /** Creates a token; its text is not stored. @throws {InputError} `busy` */
  create(order: TokenOrder, user: string): { readonly token: string; readonly stored: StoredAgentToken } {
    const { store, keys, clock, origin } = this.#deps;
    if (store.agentTokens.count() >= MAX_TOKENS) {
      throw new InputError("busy", `the limit of ${MAX_TOKENS} agent tokens is reached; delete some first`);
    }
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
    store.agentTokens.add(stored);
    const token = agentTokenText({ iss: origin, root: keys.rootThumbprint, spki: [...keys.newest.spki], id, secret });
    return { token, stored: { ...stored, uses: 0 } };
  }

  /** Revokes a token. @throws {InputError} `not-found` */
  remove(id: string): void {
    if (!this.#deps.store.agentTokens.remove(id)) throw new InputError("not-found", `there is no agent token ${id}`);
  }

  /**
   * Exchanges a token for a license bound to the requesting key; the same key gets the same license again.
   * @throws {InputError} `bad-signature` for an invalid token, `token-expired`, `token-used`, `name-taken`
   */
  async exchange(jws: string): Promise<{ readonly license: string }> {
    const { store, clock, issue } = this.#deps;
    const { claims, key } = await this.#verify(jws);
    const token = this.#valid(claims);
    const { id, createdBy } = token;
    const earlier = store.agentTokens.use(id, key);
    if (earlier?.license !== undefined) return { license: earlier.license };
    if (token.expiresAt <= clock.now() / 1000) throw new InputError("token-expired", "the token has expired");
    if (earlier !== undefined) throw new InputError("busy", "the license of this key is being issued");
    if (token.uses >= token.maxUses) throw new InputError("token-used", "the token has no uses left");
    const name = token.name ?? `${token.namePrefix ?? "agent"}-${sha256Hex(`${id} ${key}`).slice(0, 10)}`;
    store.agentTokens.take(id, key, name);
    try {
      const license = await issue({ name, type: "Agent", jkt: key, user: createdBy, lifetimeSeconds: LICENSE_SECONDS });
      // The token was revoked meanwhile.
      if (store.agentTokens.get(id) === undefined) throw unknown();
      store.agentTokens.licensed(id, key, license);
      return { license };
    } catch (error) {
      store.agentTokens.release(id, key);
      throw error;
    }
  }

  async #verify(jws: string): Promise<{ readonly claims: TokenUseClaims; readonly key: string }> {
    const { keys } = peekClaims("holdfast-token-use+jwt", jws);
    const key = await thumbprint(keys.auth);
    const claims = await verifyJws("holdfast-token-use+jwt", jws, new Map([[key, keys.auth]]));
    if (claims.aud !== this.#deps.origin) throw new InputError("bad-signature", `aud: must be ${this.#deps.origin}`);
    return { claims, key };
  }

  /** Returns the token with this id and secret, if its creator may still create one. */
  #valid({ id, secret }: TokenUseClaims): StoredAgentToken {
    const token = this.#deps.store.agentTokens.get(id);
    const expected = Buffer.from(token?.secretSha256 ?? sha256Hex(""), "hex");
    const isRight = timingSafeEqual(Buffer.from(sha256Hex(secret), "hex"), expected);
    if (token === undefined || !isRight) throw unknown();
    const policies = this.#deps.access.grantOf(token.createdBy)?.policies ?? [];
    if (!isAllowed(policies, TOKEN_PERMISSION.permissions, TOKEN_PERMISSION.resource)) throw unknown();
    return token;
  }
}

const unknown = (): InputError => new InputError("bad-signature", "the token is unknown or was revoked");
