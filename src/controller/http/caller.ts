import { InputError } from "../../errors.ts";
import type { TokenIssuer } from "./tokens.ts";
import type { Grant } from "../access/policies/policy.ts";
import type { Tags } from "../access/policies/conditions.ts";
import { TAGGED } from "../access/policies/permissions.ts";
import { rulesFor, type Rules } from "../access/policies/verdict.ts";

/** Holders of keys and credentials. */
export interface Credentials {
  findApiKey(key: string): Promise<Grant | undefined>;
  findServiceUser(name: string, clientId: string): Promise<Grant | undefined>;
  /** Returns the name of the service user with this credential. */
  checkCredential(clientId: string, secret: string): Promise<string | undefined>;
}

/** Tags of nodes and clusters that count for conditions, by resource name: their own, and those of a node's cluster below them. */
export interface ResourceTags {
  of(resource: string): Promise<Tags | undefined>;
  all(): Promise<ReadonlyMap<string, Tags>>;
}

/**
 * Sender of a request, with its policies at the start of the request. Tags are read from the store if a policy depends on them, so an open
 * transaction must not ask about nodes and clusters.
 */
export class Caller {
  readonly name: string;
  readonly #policies: Grant["policies"];
  readonly #tags: ResourceTags;
  readonly #rules = new Map<string, Rules>();

  constructor({ name, policies }: Grant, tags: ResourceTags) {
    this.name = name;
    this.#policies = policies;
    this.#tags = tags;
  }

  /** Reports whether one of these permissions is granted on the resource, and none is denied. */
  async may(permissions: readonly string[], resource: string): Promise<boolean> {
    const rules = this.#rulesFor(permissions);
    const isTagged = rules.needsTags && resource.startsWith(TAGGED);
    return rules.decide({ name: resource, tags: isTagged ? await this.#tags.of(resource) : undefined }) === "allow";
  }

  /** @throws {InputError} `forbidden`, naming the permission and the resource */
  async require(permissions: readonly string[], resource: string): Promise<void> {
    if (!(await this.may(permissions, resource))) throw forbidden(permissions, resource);
  }

  /** Returns `may` over many resources at one moment. */
  async among(permissions: readonly string[]): Promise<(resource: string) => boolean> {
    const rules = this.#rulesFor(permissions);
    const tags = rules.needsTags ? await this.#tags.all() : undefined;
    return (name) => rules.decide({ name, tags: tags?.get(name) }) === "allow";
  }

  /** Returns the scope of permissions over a kind of resource, for example `tgrn:tg::nodes:node/`. */
  reach(permissions: readonly string[], kind: string): "all" | "some" | "none" {
    return this.#rulesFor(permissions).reach(kind);
  }

  #rulesFor(permissions: readonly string[]): Rules {
    const key = permissions.join(" ");
    const rules = this.#rules.get(key) ?? rulesFor(this.#policies, permissions);
    this.#rules.set(key, rules);
    return rules;
  }
}

/** Tags of a caller who is asked about kinds without tags only. */
export const NO_TAGS: ResourceTags = { of: async () => undefined, all: async () => new Map() };

/** Caller of an operation that is open to all; has no permissions. */
export const ANYBODY = new Caller({ name: "anybody", policies: [] }, NO_TAGS);

/** Error of a caller without a permission, with `details` of the most specific one. */
export function forbidden(permissions: readonly string[], resource: string): InputError {
  const [action] = permissions;
  const message = `permission ${permissions.join(" or ")} on ${resource} is required`;
  return new InputError("forbidden", message, { details: { action, resource } });
}

const BEARER = /^bearer +(\S+)$/i;
/** Client identifier and secret, alone or after any word that ends in `-token`. */
const CREDENTIAL = /^(?:[a-z0-9]+-token\s+)?([^:\s]+):(\S+)$/i;

/**
 * Identifies the sender of a request by its `Authorization` header: `Bearer <JWT>`, `<word>-token <clientId>:<secret>`,
 * `<clientId>:<secret>` or `<API_KEY>`.
 */
export async function authenticate(
  request: Request,
  access: Credentials,
  tokens: Pick<TokenIssuer, "verify">,
  tags: ResourceTags,
): Promise<Caller> {
  return identify((request.headers.get("authorization") ?? "").trim(), access, tokens, tags);
}

/** Identifies the user of an `Authorization` header. @throws {InputError} `unauthorized` */
export async function identify(
  header: string,
  access: Credentials,
  tokens: Pick<TokenIssuer, "verify">,
  tags: ResourceTags,
): Promise<Caller> {
  if (header === "") throw unauthorized("no Authorization header");
  const token = BEARER.exec(header)?.[1];
  if (token?.includes(":") === true) {
    const forms = "'holdfast-token <clientId>:<secret>', or exchange them at POST /v2/auth/token";
    throw unauthorized(`'Bearer' takes a JWT, not a client ID and secret: send ${forms}`);
  }
  const grant = await (token === undefined ? grantOfKey(header, access) : grantOf(token, access, tokens));
  if (grant === undefined) throw unauthorized("invalid credentials");
  return new Caller(grant, tags);
}

async function grantOfKey(header: string, access: Credentials): Promise<Grant | undefined> {
  const [, clientId, secret] = CREDENTIAL.exec(header) ?? [];
  if (clientId === undefined || secret === undefined) return access.findApiKey(header);
  const user = await access.checkCredential(clientId, secret);
  return user === undefined ? undefined : access.findServiceUser(user, clientId);
}

async function grantOf(
  token: string,
  access: Credentials,
  tokens: Pick<TokenIssuer, "verify">,
): Promise<Grant | undefined> {
  const subject = await tokens.verify(token);
  return subject === undefined ? undefined : access.findServiceUser(subject.user, subject.clientId);
}

const unauthorized = (message: string): InputError => new InputError("unauthorized", message);

/** Returns the challenge of a 401 response (RFC 6750 §3) to a browser; programs get none, and read the body. */
export function challengeFor({ headers }: Request): Readonly<Record<string, string>> {
  const isBrowser = headers.has("sec-fetch-mode") || (headers.get("accept") ?? "").includes("text/html");
  if (!isBrowser) return {};
  const hasToken = BEARER.test(headers.get("authorization") ?? "");
  return { "www-authenticate": `Bearer realm="holdfast"${hasToken ? ', error="invalid_token"' : ""}` };
}
