import { InputError } from "../../errors.ts";
import type { TokenIssuer } from "./tokens.ts";
import type { Grant } from "../access/policies/policy.ts";
import { isAllowed, reachOf } from "../access/policies/verdict.ts";

/** Holders of keys and credentials. */
export interface Credentials {
  findApiKey(key: string): Promise<Grant | undefined>;
  findServiceUser(name: string, clientId: string): Promise<Grant | undefined>;
  /** Returns the name of the service user with this credential. */
  checkCredential(clientId: string, secret: string): Promise<string | undefined>;
}

/** Sender of a request, with its policies at the start of the request. */
export class Caller {
  readonly name: string;
  readonly #policies: Grant["policies"];

  constructor(grant: Grant) {
    this.name = grant.name;
    this.#policies = grant.policies;
  }

  /** Reports whether one of these permissions, most specific first, is granted on the resource. */
  may(permissions: readonly string[], resource: string): boolean {
    return isAllowed(this.#policies, permissions, resource);
  }

  /** @throws {InputError} `forbidden`, naming the permission and the resource */
  require(permissions: readonly string[], resource: string): void {
    if (!this.may(permissions, resource)) throw forbidden(permissions, resource);
  }

  /** Returns the scope of a permission over a kind of resource, for example `tgrn:tg::nodes:node/`. */
  reach(permission: string, kind: string): "all" | "some" | "none" {
    return reachOf(this.#policies, permission, kind);
  }
}

/** Caller of an operation that is open to all; has no permissions. */
export const ANYBODY = new Caller({ name: "anybody", policies: [] });

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
): Promise<Caller> {
  return identify((request.headers.get("authorization") ?? "").trim(), access, tokens);
}

/** Identifies the user of an `Authorization` header. @throws {InputError} `unauthorized` */
export async function identify(
  header: string,
  access: Credentials,
  tokens: Pick<TokenIssuer, "verify">,
): Promise<Caller> {
  if (header === "") throw unauthorized("no Authorization header");
  const token = BEARER.exec(header)?.[1];
  if (token?.includes(":") === true) {
    const forms = "'holdfast-token <clientId>:<secret>', or exchange them at POST /v2/auth/token";
    throw unauthorized(`'Bearer' takes a JWT, not a client ID and secret: send ${forms}`);
  }
  const grant = await (token === undefined ? grantOfKey(header, access) : grantOf(token, access, tokens));
  if (grant === undefined) throw unauthorized("invalid credentials");
  return new Caller(grant);
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
