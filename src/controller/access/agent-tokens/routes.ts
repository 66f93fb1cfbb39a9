import { z } from "zod";
import { NodeName, Uid } from "../../../protocol/values/values.ts";
import { TOKEN_PERMISSION } from "./service.ts";
import type { StoredAgentToken } from "./store.ts";
import { route, type Route } from "../../http/route.ts";
import { badBody, Empty, notFound, refusals, Seconds } from "../../http/shapes.ts";
import { defined } from "../../../lib/defined.ts";
import type { AgentTokens } from "./service.ts";

const tag = "Agent tokens";
const access = {
  to: "resource",
  permissions: TOKEN_PERMISSION.permissions,
  resource: () => TOKEN_PERMISSION.resource,
} as const;

const DAY = 24 * 3600;
const MAX_DAYS = 90;
const MAX_USES = 1000;
/** Leaves room for a dash and ten digits in a name of 63 characters. */
const MAX_PREFIX = 52;

const expiresInSeconds = z
  .int()
  .min(60)
  .max(MAX_DAYS * DAY)
  .default(DAY);
const TokenOrder = z
  .union([
    z.strictObject({ name: NodeName, expiresInSeconds }),
    z.strictObject({
      namePrefix: NodeName.max(MAX_PREFIX),
      maxUses: z.int().min(1).max(MAX_USES).default(1),
      expiresInSeconds,
    }),
  ])
  .meta({
    description: "For one agent with this `name`, or for up to `maxUses` agents whose names start with `namePrefix`",
  });

const Token = z
  .object({
    id: Uid,
    name: NodeName.optional(),
    namePrefix: NodeName.optional(),
    maxUses: z.int(),
    uses: z.int(),
    created_at: Seconds,
    expires_at: Seconds,
    created_by: z.string(),
  })
  .meta({ id: "AgentToken" });

export interface AgentTokenRouteDeps {
  readonly agentTokens: Pick<AgentTokens, "all" | "create" | "remove">;
}

/** Routes of the tokens that register agents. */
export function agentTokenRoutes({ agentTokens }: AgentTokenRouteDeps): readonly Route[] {
  return [
    route({
      method: "GET",
      path: "/v2/agent-token",
      operationId: "listAgentTokens",
      summary: "List agent tokens, without their secrets",
      tag,
      access,
      answers: { 200: { description: "The tokens", schema: z.array(Token) }, ...refusals },
      handle: async () => Response.json((await agentTokens.all()).map(publicToken)),
    }),
    route({
      method: "POST",
      path: "/v2/agent-token",
      operationId: "createAgentToken",
      summary: "Create a token that registers agents",
      tag,
      access,
      body: { schema: TokenOrder },
      answers: {
        200: {
          description: "The token; its text is not shown again",
          schema: Token.extend({ token: z.string() }).meta({ id: "NewAgentToken" }),
        },
        ...refusals,
        ...badBody,
      },
      handle: async ({ body, caller }) => {
        const { token, stored } = await agentTokens.create(body, caller.name);
        return Response.json({ ...publicToken(stored), token });
      },
    }),
    route({
      method: "DELETE",
      path: "/v2/agent-token/{id}",
      operationId: "deleteAgentToken",
      summary: "Revoke an agent token; agents that registered with it stay",
      tag,
      access,
      params: z.object({ id: z.string().max(64) }),
      answers: { 200: { description: "Revoked", schema: Empty }, ...refusals, ...notFound },
      handle: async ({ params: { id }, caller }) => {
        await agentTokens.remove(id, caller.name);
        return Response.json({});
      },
    }),
  ];
}

function publicToken(token: StoredAgentToken): z.infer<typeof Token> {
  const { id, name, namePrefix, maxUses, uses, createdAt, expiresAt, createdBy } = token;
  return {
    id,
    ...defined({ name, namePrefix }),
    maxUses,
    uses,
    created_at: createdAt,
    expires_at: expiresAt,
    created_by: createdBy,
  };
}
