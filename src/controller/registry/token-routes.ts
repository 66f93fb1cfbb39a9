import { z } from "zod";
import { InputError } from "../../errors.ts";
import { RepositoryName } from "../../protocol/documents/registry.ts";
import { Text256 } from "../../protocol/values/values.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { REGISTRY_SERVICE, type RegistryAccess } from "./registry-tokens.ts";
import { identify, NO_TAGS, type Caller } from "../http/caller.ts";
import { route, type Route } from "../http/route.ts";
import { Problem, refusals } from "../http/shapes.ts";
import type { AccessStore } from "../access/store.ts";
import type { TokenIssuer } from "../http/tokens.ts";
import type { RegistryTokens } from "./registry-tokens.ts";
import type { NodeService } from "../nodes/service.ts";
import type { Clock } from "../../host/clock.ts";

const SCOPE = /^repository(?:\([a-z0-9]+\))?:([^:]{1,255}):([a-z*,]{1,64})$/;
const MAX_SCOPES = 16;
const PERMISSIONS: ReadonlyMap<string, string> = new Map([
  ["pull", "repositories::read"],
  ["push", "repositories::modify"],
  ["delete", "repositories::modify"],
]);

const Token = z
  .strictObject({ token: z.string(), access_token: z.string(), expires_in: z.int(), issued_at: z.string() })
  .meta({ id: "RegistryToken" });

/** Authenticated client and its permissions on repositories. */
interface Bearer {
  readonly name: string;
  readonly may: (repository: string, action: string) => Promise<boolean>;
}

export interface RegistryTokenRouteDeps {
  readonly access: AccessStore;
  readonly tokens: TokenIssuer;
  /** Undefined without a registry. */
  readonly registryTokens?: RegistryTokens | undefined;
  readonly nodes: NodeService;
  readonly clock: Clock;
}

/**
 * Routes of the registry's token server (Docker Registry v2 authentication). Nodes use the credential of `registry.token`; people use any
 * name, with an API key or access token as the password.
 */
export function registryTokenRoutes(deps: RegistryTokenRouteDeps): readonly Route[] {
  return [
    route({
      method: "GET",
      path: "/registry/token",
      operationId: "issueRegistryToken",
      summary: "Exchange HTTP Basic credentials for a token that the registry accepts",
      tag: "Repositories",
      access: { to: "all" },
      query: z.object({
        service: z.literal(REGISTRY_SERVICE, { error: `must be ${REGISTRY_SERVICE}` }),
        scope: z
          .preprocess(
            (value) => (value === undefined || Array.isArray(value) ? value : [value]),
            z.array(z.string()).max(MAX_SCOPES).optional(),
          )
          .meta({ description: "`repository:<name>:pull,push`; may be repeated" }),
        account: Text256.optional(),
        client_id: Text256.optional(),
        offline_token: z.string().max(16).optional(),
      }),
      answers: {
        200: { description: "The token, without requested actions that are not allowed", schema: Token },
        401: { description: "Invalid credentials", schema: Problem },
        429: refusals[429],
      },
      handle: async ({ query: { scope }, request }) => {
        const tokens = deps.registryTokens;
        if (tokens === undefined) throw new InputError("not-configured", "this control plane has no registry");
        const bearer = await bearerOf(deps, request);
        const access: RegistryAccess[] = [];
        for (const { name, actions } of wanted(scope ?? [])) {
          const allowed: string[] = [];
          for (const action of actions) if (await bearer.may(name, action)) allowed.push(action);
          if (allowed.length > 0) access.push({ type: "repository", name, actions: allowed });
        }
        const { token, expiresIn } = await tokens.issue(bearer.name, access);
        const issuedAt = new Date(deps.clock.now()).toISOString();
        return Response.json({ token, access_token: token, expires_in: expiresIn, issued_at: issuedAt });
      },
    }),
  ];
}

/** Parses the requested repositories; a scope may list several, and invalid ones are ignored. */
function wanted(scopes: readonly string[]): readonly { readonly name: string; readonly actions: readonly string[] }[] {
  return scopes
    .flatMap((text) => text.split(" "))
    .slice(0, MAX_SCOPES)
    .flatMap((text) => {
      const [, name = "", actions = ""] = SCOPE.exec(text) ?? [];
      return RepositoryName.safeParse(name).success ? [{ name, actions: actions.split(",") }] : [];
    });
}

/** @throws {InputError} `unauthorized` */
async function bearerOf(
  { access, tokens, registryTokens, nodes }: RegistryTokenRouteDeps,
  request: Request,
): Promise<Bearer> {
  const [username, password] = basicOf(request);
  const node = await registryTokens?.bearerOf(username, password);
  if (node !== undefined) {
    // A deleted node must not pull.
    if ((await nodes.get(node.uid)) === undefined) throw unauthorized();
    return { name: node.uid, may: async (repository, action) => action === "pull" && repository === node.repository };
  }
  const caller = await callerOf(password, { access, tokens });
  return {
    name: caller.name,
    may: async (repository, action) => {
      const permission = PERMISSIONS.get(action);
      return permission !== undefined && (await caller.may([permission], tgrn.repository(repository)));
    },
  };
}

/** Identifies the user of a password: an API key or an access token. */
async function callerOf(
  password: string,
  { access, tokens }: Pick<RegistryTokenRouteDeps, "access" | "tokens">,
): Promise<Caller> {
  try {
    return await identify(password, access, tokens, NO_TAGS);
  } catch (error) {
    if (!(error instanceof InputError && error.code === "unauthorized")) throw error;
    return identify(`Bearer ${password}`, access, tokens, NO_TAGS);
  }
}

function basicOf(request: Request): readonly [username: string, password: string] {
  const encoded = /^basic +([A-Za-z0-9+/=_-]{1,8192})$/i.exec((request.headers.get("authorization") ?? "").trim())?.[1];
  if (encoded === undefined) throw unauthorized();
  const text = Buffer.from(encoded, "base64").toString("utf8");
  const colon = text.indexOf(":");
  // Any other character cannot occur in a header.
  if (colon < 0 || !/^[ -~]+$/.test(text)) throw unauthorized();
  return [text.slice(0, colon), text.slice(colon + 1)];
}

const unauthorized = (): InputError => new InputError("unauthorized", "invalid credentials");
