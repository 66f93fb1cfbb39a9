import { InputError } from "../../errors.ts";
import type { TokenIssuer } from "./tokens.ts";
import type { Grant } from "../access/policies/policy.ts";
import { isAllowed, reachOf } from "../access/policies/verdict.ts";

/** Holders of keys and credentials. */
export interface Credentials {
  findApiKey(key: string): Promise<Grant | undefined>;
  findServiceUser(name: string, clientId: string): Promise<Grant | undefined>;
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

/** Error of a caller without a permission. */
export function forbidden(permissions: readonly string[], resource: string): InputError {
  const permission = permissions.join(" or ");
  const details = { permission, resource };
  return new InputError("forbidden", `permission ${permission} on ${resource} is required`, { details });
}

const BEARER = /^bearer +(\S+)$/i;

/** Identifies the sender of a request by its `Authorization` header: an API key, or `Bearer` and a JWT. */
export async function authenticate(request: Request, access: Credentials, tokens: TokenIssuer): Promise<Caller> {
  return identify((request.headers.get("authorization") ?? "").trim(), access, tokens);
}

/** Identifies the user of an `Authorization` header. @throws {InputError} `unauthorized` */
export async function identify(header: string, access: Credentials, tokens: TokenIssuer): Promise<Caller> {
  if (header === "") throw unauthorized("no Authorization header");
  const token = BEARER.exec(header)?.[1];
  const grant = await (token === undefined ? access.findApiKey(header) : grantOf(token, access, tokens));
  if (grant === undefined) throw unauthorized("invalid credentials");
  return new Caller(grant);
}

async function grantOf(token: string, access: Credentials, tokens: TokenIssuer): Promise<Grant | undefined> {
  const subject = await tokens.verify(token);
  return subject === undefined ? undefined : access.findServiceUser(subject.user, subject.clientId);
}

const unauthorized = (message: string): InputError => new InputError("unauthorized", message);

/** Returns the challenge of a 401 response (RFC 6750 §3). */
export function challengeFor(request: Request): string {
  const hasToken = BEARER.test(request.headers.get("authorization") ?? "");
  return `Bearer realm="holdfast"${hasToken ? ', error="invalid_token"' : ""}`;
}
