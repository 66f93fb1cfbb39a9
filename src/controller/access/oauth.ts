import { z } from "zod";
import { InputError } from "../../errors.ts";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import { mediaType, readBytes } from "../http/body.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, refusals } from "../http/shapes.ts";
import type { AccessStore } from "./store.ts";
import type { IssuedToken, TokenIssuer } from "../http/tokens.ts";

const MAX_BYTES = 16 * 1024;
const OAuthProblem = z
  .object({ error: z.string(), error_description: z.string().optional() })
  .meta({ id: "OAuthProblem", description: "RFC 6749 §5.2" });

/** Error response of RFC 6749 §5.2. */
class OAuthError extends Error {
  readonly code: string;
  readonly status: number;

  constructor(code: string, message: string, status = 400) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

export interface OauthRouteDeps {
  readonly access: AccessStore;
  readonly tokens: TokenIssuer;
}

const EXCHANGED_SECONDS = 900;
const Text = z.string().min(1).max(256);

/** Routes that exchange a client identifier and secret for an access token: the endpoint of RFC 6749 §4.4, and one in plain JSON. */
export function oauthRoutes({ access, tokens }: OauthRouteDeps): readonly Route[] {
  /** Returns a token of the service user with this credential; undefined if there is none. */
  const exchange = async (clientId: string, secret: string, seconds?: number): Promise<IssuedToken | undefined> => {
    const user = await access.checkCredential(clientId, secret);
    return user === undefined ? undefined : tokens.issue({ user, clientId }, seconds);
  };
  return [
    route({
      method: "POST",
      path: "/oauth/token",
      operationId: "issueToken",
      summary: "Exchange a client ID and secret for an access token of one hour (client credentials)",
      tag: "Authentication",
      access: { to: "all" },
      form: z
        .object({
          grant_type: z.literal("client_credentials"),
          client_id: z.string().optional(),
          client_secret: z.string().optional(),
        })
        .meta({ description: "The client may also authenticate by HTTP Basic" }),
      answers: {
        200: {
          description: "The token",
          schema: z
            .strictObject({ access_token: z.string(), token_type: z.literal("Bearer"), expires_in: z.int() })
            .meta({ id: "AccessToken" }),
        },
        400: { description: "The request is invalid", schema: OAuthProblem },
        401: { description: "Unknown client or wrong secret", schema: OAuthProblem },
        429: refusals[429],
        413: { description: "The body is too large", schema: OAuthProblem },
        415: { description: "The body is neither a form nor JSON", schema: OAuthProblem },
      },
      handle: async ({ request }) => {
        try {
          const form = await readForm(request);
          const grant = form.get("grant_type");
          if (grant === undefined) throw new OAuthError("invalid_request", "grant_type is missing");
          if (grant !== "client_credentials") {
            throw new OAuthError("unsupported_grant_type", "grant_type must be client_credentials");
          }
          const [clientId, secret] = clientOf(request, form);
          const issued = await exchange(clientId, secret);
          if (issued === undefined) throw new OAuthError("invalid_client", "unknown client or wrong secret", 401);
          const { token, expiresInSeconds } = issued;
          return Response.json({ access_token: token, token_type: "Bearer", expires_in: expiresInSeconds });
        } catch (error) {
          if (error instanceof OAuthError) return refusal(error);
          throw error;
        }
      },
    }),
    route({
      method: "POST",
      path: "/v2/auth/token",
      operationId: "exchangeCredential",
      summary: "Exchange a client ID and secret for an access token of 15 minutes",
      tag: "Authentication",
      access: { to: "all" },
      body: { schema: z.object({ clientId: Text, secret: Text }), limits: { maxBytes: MAX_BYTES, maxDepth: 2 } },
      answers: {
        200: {
          description: "The token, and when it ends in Unix seconds",
          schema: z.strictObject({ token: z.string(), expiresAt: z.int() }).meta({ id: "ExchangedToken" }),
        },
        401: refusals[401],
        429: refusals[429],
        ...badBody,
      },
      handle: async ({ body: { clientId, secret } }) => {
        const issued = await exchange(clientId, secret, EXCHANGED_SECONDS);
        if (issued === undefined) throw new InputError("unauthorized", "unknown client or wrong secret");
        return Response.json({ token: issued.token, expiresAt: issued.expiresAt });
      },
    }),
  ];
}

function refusal({ code, message, status }: OAuthError): Response {
  const headers = status === 401 ? { "www-authenticate": 'Basic realm="holdfast"' } : undefined;
  return Response.json({ error: code, error_description: message }, { status, ...(headers && { headers }) });
}

async function readForm(request: Request): Promise<ReadonlyMap<string, string>> {
  const type = mediaType(request);
  try {
    const bytes = await readBytes(request, MAX_BYTES);
    if (type === "application/x-www-form-urlencoded") {
      return single([...new URLSearchParams(new TextDecoder("utf-8", { fatal: true }).decode(bytes))]);
    }
    if (type === "application/json") {
      const value = parseStrictJson(bytes, { maxBytes: MAX_BYTES, maxDepth: 2 });
      return single(Object.entries(z.record(z.string(), z.string()).parse(value)));
    }
  } catch (error) {
    if (error instanceof OAuthError) throw error;
    const status = error instanceof InputError && error.code === "too-large" ? 413 : 400;
    throw new OAuthError(
      "invalid_request",
      status === 413 ? "the body is too large" : "the body cannot be read",
      status,
    );
  }
  throw new OAuthError("invalid_request", "content-type must be application/x-www-form-urlencoded", 415);
}

/** Rejects repeated parameters and drops empty ones (RFC 6749 §3.2). */
function single(entries: readonly (readonly [string, string])[]): ReadonlyMap<string, string> {
  const form = new Map<string, string>();
  for (const [key, value] of entries) {
    if (form.has(key)) throw new OAuthError("invalid_request", "a parameter is given twice");
    if (value !== "") form.set(key, value);
  }
  return form;
}

/** Returns the client's identifier and secret, from HTTP Basic (RFC 6749 §2.3.1) or from the form, but not both. */
function clientOf(request: Request, form: ReadonlyMap<string, string>): readonly [string, string] {
  const header = request.headers.get("authorization");
  const basic = header === null ? undefined : parseBasic(header);
  if (header !== null && basic === undefined) throw new OAuthError("invalid_client", "use HTTP Basic", 401);
  const clientId = form.get("client_id");
  const secret = form.get("client_secret");
  if (basic !== undefined) {
    if (secret !== undefined || (clientId !== undefined && clientId !== basic[0])) {
      throw new OAuthError("invalid_request", "the client authenticates in two ways; use HTTP Basic or the form");
    }
    return basic;
  }
  if (clientId === undefined || secret === undefined) {
    throw new OAuthError("invalid_client", "client_id or client_secret is missing", 401);
  }
  return [clientId, secret];
}

function parseBasic(header: string): readonly [string, string] | undefined {
  const encoded = /^basic +([A-Za-z0-9+/=]{1,8192})$/i.exec(header)?.[1];
  if (encoded === undefined) return undefined;
  const text = Buffer.from(encoded, "base64").toString("utf8");
  const colon = text.indexOf(":");
  if (colon === -1) return undefined;
  try {
    return [formDecode(text.slice(0, colon)), formDecode(text.slice(colon + 1))];
  } catch {
    return undefined;
  }
}

const formDecode = (text: string): string => decodeURIComponent(text.replaceAll("+", " "));
