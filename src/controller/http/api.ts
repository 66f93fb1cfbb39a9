import { randomUUID } from "node:crypto";
import { Hono, type Context } from "hono";
import { InputError, toError } from "../../errors.ts";
import type { RequestScope, Source } from "./sources.ts";
import { compressed } from "./compressed.ts";
import { authenticate, challengeFor, type Credentials, type ResourceTags } from "./caller.ts";
import { refusalOf, problemResponse } from "./problem.ts";
import type { RawCall, Route } from "./route.ts";
import type { Upgrade } from "./upgrade.ts";
import type { Clock } from "../../host/clock.ts";
import type { Logger } from "pino";
import type { TokenIssuer } from "./tokens.ts";

/** Prefix under which every path is served as well. */
export const ALIAS = "/api";
const MAX_QUERY_LENGTH = 16 * 1024;
const REQUEST_ID = /^[A-Za-z0-9._-]{1,64}$/;

export interface ApiDeps {
  /** If two paths match a request, the earlier one wins. */
  readonly routes: readonly Route[];
  readonly access: Credentials;
  readonly tokens: Pick<TokenIssuer, "verify">;
  readonly resourceTags: ResourceTags;
  readonly requests: Pick<RequestScope, "within">;
  /** Called after each successful authentication. */
  readonly onAuthenticated?: (user: string, source: Source) => void;
  /** Counts a failed authentication; returns the seconds to wait if an address has too many. */
  readonly onAuthFailure?: (source: Source) => number | undefined;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Environment of a request that may be upgraded to a WebSocket. */
export interface ApiEnv {
  Bindings: { readonly upgrade?: Upgrade; readonly source?: Source };
}

/** Builds the management API as a Hono application. */
export function createApi(deps: ApiDeps): Hono<ApiEnv> {
  const app = new Hono<ApiEnv>();
  const { routes } = deps;
  for (const route of routes) {
    const path = route.path.replaceAll(/\{(\w+)\}/g, ":$1");
    app.on(route.method, [path, `${ALIAS}${path}`], (context) =>
      respond(deps, route.operationId, context, (identify) =>
        deps.requests.within(sourceOf(context.env), () => run(route, context, identify)),
      ),
    );
  }
  const patterns = routes.map(({ method, path }) => ({ method, pattern: patternOf(path) }));
  app.notFound((context) => {
    const { req } = context;
    const methods = patterns.filter(({ pattern }) => pattern.test(req.path)).map(({ method }) => method);
    return respond(deps, "none", context, () => refuseUnknown(req.method, methods));
  });
  return app;
}

function run(route: Route, context: Context<ApiEnv>, identify: RawCall["identify"]): Promise<Response> {
  const request = context.req.raw;
  const { search } = new URL(request.url);
  if (search.length > MAX_QUERY_LENGTH) throw new InputError("uri-too-long", "the query is too long");
  // Tests call the application without any bindings.
  const upgrade = (context.env as ApiEnv["Bindings"] | undefined)?.upgrade;
  const source = sourceOf(context.env);
  return route.run({
    params: context.req.param(),
    search: new URLSearchParams(search),
    request,
    identify,
    upgrade,
    source,
  });
}

/** Returns the origin of a request; tests call the application without any bindings. */
function sourceOf(env: ApiEnv["Bindings"] | undefined): Source {
  return env?.source ?? { address: "unknown", prefix: "unknown" };
}

/** Runs a request and adds the common parts of its response: errors, headers and the log line. */
async function respond(
  deps: ApiDeps,
  operation: string,
  context: Context<ApiEnv>,
  work: (identify: RawCall["identify"]) => Response | Promise<Response>,
): Promise<Response> {
  const request = context.req.raw;
  const requestId = requestIdOf(request);
  const startedAt = deps.clock.elapsed();
  let caller: string | undefined;
  let response: Response;
  try {
    response = await work(async () => {
      const identified = await authenticate(request, deps.access, deps.tokens, deps.resourceTags);
      caller = identified.name;
      deps.onAuthenticated?.(caller, sourceOf(context.env));
      return identified;
    });
  } catch (error) {
    const { status, isFault } = refusalOf(error);
    if (isFault) deps.log.error({ requestId, operation, err: toError(error) }, "request failed");
    response = problemResponse(error, status === 401 ? challengeFor(request) : {});
  }
  if (response.status === 401) response = limited(deps, context) ?? response;
  const durationMs = Math.round(deps.clock.elapsed() - startedAt);
  const { method } = request;
  deps.log.debug({ requestId, method, operation, status: response.status, durationMs, caller }, "request");
  response.headers.set("x-request-id", requestId);
  if (!response.headers.has("cache-control")) response.headers.set("cache-control", "no-store");
  response.headers.set("x-content-type-options", "nosniff");
  return compressed(request, response);
}

/**
 * Counts a failed authentication; returns the response to send instead if an address has too many. Valid credentials are never rejected.
 */
function limited({ onAuthFailure }: ApiDeps, { env, req }: Context<ApiEnv>): Response | undefined {
  // A client may send a request without credentials first, to learn which are required.
  if (req.header("authorization") === undefined && req.method === "GET") return undefined;
  const waitSeconds = onAuthFailure?.(sourceOf(env));
  if (waitSeconds === undefined) return undefined;
  const error = new InputError(
    "too-many-failures",
    "too many failed authentications from this address; try again later",
  );
  return problemResponse(error, { "retry-after": String(waitSeconds) });
}

function refuseUnknown(method: string, methods: readonly string[]): Response {
  if (methods.length === 0) return problemResponse(new InputError("unknown-path", "unknown path"));
  const allowed = [...new Set(methods.includes("GET") ? [...methods, "HEAD"] : methods)].sort().join(", ");
  const error = new InputError("wrong-method", `${method} is not supported here; use ${allowed}`);
  return problemResponse(error, { allow: allowed });
}

function requestIdOf(request: Request): string {
  const given = request.headers.get("x-request-id") ?? "";
  return REQUEST_ID.test(given) ? given : randomUUID();
}

function patternOf(path: string): RegExp {
  const source = path.split("/").map((segment) => (segment.startsWith("{") ? "[^/]+" : segment.replaceAll(".", "\\.")));
  return new RegExp(`^(?:${ALIAS})?${source.join("/")}$`);
}
