import { randomBytes, randomUUID } from "node:crypto";
import { z } from "zod";
import { InputError } from "../../errors.ts";
import { defined } from "../../lib/defined.ts";
import { ORGANIZATION, tgrn } from "./policies/permissions.ts";
import { isRestricted, NewServiceUserName, PolicyName, ServiceUserName } from "./policies/policy.ts";
import { recording, type AccessRouteDeps } from "./routes.ts";
import { sha256Hex, type AccessStore, type ServiceUser } from "./store.ts";
import { Violations } from "../http/problem.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, Empty, notFound, PublicServiceUser, refusals, Unset } from "../http/shapes.ts";

const tag = "Service users";
const PERMISSIONS = ["permissions::modify"];
const Status = z.enum(["active", "inactive"]);
const UserParams = z.object({ name: ServiceUserName });

/** Parts of a service user that a caller writes; those that the controller assigns are ignored. */
const UserBody = {
  status: Status.optional().meta({ description: "Default: `active`" }),
  policies: z.array(PolicyName).max(64).nullish(),
  policyIds: z.array(PolicyName).max(64).nullish().meta({ description: "The same as `policies`" }),
  orgId: z.string().max(64).nullish().meta({ description: "Ignored" }),
  clientId: z.string().max(64).nullish().meta({ description: "Ignored" }),
  tokenCreated: z.number().nullish().meta({ description: "Ignored" }),
  created_at: z.number().nullish().meta({ description: "Ignored" }),
};

const NewUser = z
  .strictObject({ ...UserBody, name: NewServiceUserName })
  .meta({ description: "Also requires `permissions::modify` on each policy" });
const ChangedUser = z.strictObject({ ...UserBody, name: ServiceUserName.optional() }).meta({
  description:
    "`name` must match the path. Also requires `permissions::modify` on each policy that is added or removed and, to make an inactive user active, on each of its policies",
});
const acceptedStatus = { status: z.union([Status, Unset]) };

export interface ServiceUserRouteDeps extends AccessRouteDeps {
  /** Seconds for which the earlier credential of a service user stays valid after a new one is generated; 0: it ends at once. */
  readonly secretOverlapSeconds: number;
  /** UUID of the organization. */
  readonly org: string;
}

/** Routes of service users, the accounts of programs. */
export function serviceUserRoutes(deps: ServiceUserRouteDeps): readonly Route[] {
  const { access, clock, secretOverlapSeconds, org } = deps;
  const shown = (user: ServiceUser) => publicServiceUser(user, org);
  const record = recording(deps, "serviceUser");
  const onUser = (verb: "read" | "modify") =>
    ({
      to: "resource",
      permissions: [`users::${verb}`],
      resource: ({ name }: z.infer<typeof UserParams>) => tgrn.serviceUser(name),
    }) as const;
  return [
    route({
      method: "GET",
      path: "/v2/service-user",
      operationId: "listServiceUsers",
      summary: "List service users",
      tag,
      access: { to: "kind", permissions: ["users::read"], kind: tgrn.serviceUser("") },
      answers: {
        200: { description: "The service users the caller may read", schema: z.array(PublicServiceUser) },
        ...refusals,
      },
      handle: async ({ caller }) => {
        const may = await caller.among(["users::read"]);
        const listed = (await access.serviceUsers()).filter(({ name }) => may(tgrn.serviceUser(name)));
        return Response.json(listed.map(shown));
      },
    }),
    route({
      method: "POST",
      path: "/v2/service-user",
      operationId: "createServiceUser",
      summary: "Create a service user with its policies",
      tag,
      access: { to: "resource", permissions: ["users::modify"], resource: () => ORGANIZATION },
      body: {
        schema: NewUser.extend(acceptedStatus),
        described: NewUser,
      },
      answers: {
        200: { description: "The service user", schema: PublicServiceUser },
        ...refusals,
        ...badBody,
      },
      handle: async ({ body, caller }) => {
        const { name, status } = body;
        const [field, policies] = policiesIn(body);
        for (const policy of policies) await caller.require(PERMISSIONS, tgrn.policy(policy));
        const at = Math.floor(clock.now() / 1000);
        const item = { action: "create", id: name } as const;
        const created = await record(caller.name, `Service user ${name} created`, item, async (tx) => {
          await checkPolicies(tx, field, policies);
          return tx.createServiceUser(name, policies, at, isActiveIn(status));
        });
        return Response.json(shown(created));
      },
    }),
    route({
      method: "PUT",
      path: "/v2/service-user/{name}",
      operationId: "replaceServiceUser",
      summary:
        "Change the policies and the status of a service user; `inactive` refuses its credentials and tokens at once",
      tag,
      access: onUser("modify"),
      params: UserParams,
      body: {
        schema: ChangedUser.extend({ ...acceptedStatus, name: z.union([ServiceUserName, Unset]) }),
        described: ChangedUser,
      },
      answers: {
        200: { description: "The service user", schema: PublicServiceUser },
        ...refusals,
        ...notFound,
        ...badBody,
      },
      handle: async ({ params: { name }, body, caller }) => {
        if (Boolean(body.name) && body.name !== name)
          throw new Violations([`name: must be ${name}; a service user cannot be renamed`]);
        const [field, policies] = policiesIn(body);
        const isActive = isActiveIn(body.status);
        const item = { action: "change", id: name } as const;
        const changed = await record(caller.name, `Service user ${name} changed`, item, async (tx) => {
          const before = await tx.serviceUser(name);
          if (before === undefined) throw new InputError("not-found", `there is no service user ${name}`);
          const kept = before.isActive || !isActive ? new Set(before.policies) : new Set<string>();
          const given = policies.filter((policy) => !kept.has(policy));
          const taken = before.policies.filter((policy) => !policies.includes(policy));
          for (const policy of [...given, ...taken]) await caller.require(PERMISSIONS, tgrn.policy(policy));
          // A name that stays may be that of a policy that is gone.
          await checkPolicies(tx, field, policies, before.policies);
          return tx.changeServiceUser(name, { policies, isActive });
        });
        return Response.json(shown(changed));
      },
    }),
    route({
      method: "DELETE",
      path: "/v2/service-user/{name}",
      operationId: "deleteServiceUser",
      summary: "Delete a service user with its credentials and the agent tokens that it created",
      tag,
      access: onUser("modify"),
      params: UserParams,
      answers: { 200: { description: "Deleted", schema: Empty }, ...refusals, ...notFound },
      handle: async ({ params: { name }, caller }) => {
        const item = { action: "delete", id: name } as const;
        await record(caller.name, `Service user ${name} deleted`, item, async (tx, { agentTokens }) => {
          await tx.deleteServiceUser(name);
          // A later user of this name must not own them.
          await agentTokens.removeOf(name);
        });
        return Response.json({});
      },
    }),
    route({
      method: "GET",
      path: "/v2/service-user/{name}",
      operationId: "getServiceUser",
      summary: "Get a service user",
      tag,
      access: onUser("read"),
      params: UserParams,
      answers: { 200: { description: "The service user", schema: PublicServiceUser }, ...refusals, ...notFound },
      handle: async ({ params: { name } }) => {
        const found = await access.serviceUser(name);
        if (found === undefined) throw new InputError("not-found", `there is no service user ${name}`);
        return Response.json(shown(found));
      },
    }),
    route({
      method: "POST",
      path: "/v2/service-user/{name}/token",
      operationId: "createServiceUserToken",
      summary:
        "Generate a client ID and secret, replacing earlier ones: at once, or after the controller's overlap, during which the newest two are valid. For another user, also requires `permissions::modify` on each of its policies",
      tag,
      access: onUser("modify"),
      params: UserParams,
      answers: {
        200: {
          description: "The credential; the secret is not shown again",
          schema: z
            .strictObject({
              clientId: z.string(),
              clientSecret: z.string(),
              secret: z.string(),
              previousExpiresAt: z
                .int()
                .optional()
                .meta({ description: "End of the credential that it replaces, Unix seconds; absent if it has ended" }),
            })
            .meta({ id: "Credential", description: "`secret` and `clientSecret` are the same" }),
        },
        ...refusals,
        ...notFound,
      },
      handle: async ({ params: { name }, caller }) => {
        const clientId = randomUUID();
        const clientSecret = randomBytes(32).toString("base64url");
        const now = clock.now();
        const overlapMs = secretOverlapSeconds * 1000;
        const item = { action: "change", id: name } as const;
        const hadOne = await record(caller.name, `Credential of service user ${name} generated`, item, async (tx) => {
          const user = await tx.serviceUser(name);
          // A credential grants its user's permissions, so the caller must have all of them; replacing one's own gains nothing.
          const policies = caller.name === name ? [] : (user?.policies ?? []);
          for (const policy of policies) await caller.require(PERMISSIONS, tgrn.policy(policy));
          await tx.putCredential(name, { clientId, secretSha256: sha256Hex(clientSecret), now, overlapMs });
          return user?.clientId !== undefined;
        });
        const overlap = hadOne && overlapMs > 0 ? { previousExpiresAt: Math.floor((now + overlapMs) / 1000) } : {};
        return Response.json({ clientId, clientSecret, secret: clientSecret, ...overlap });
      },
    }),
  ];
}

const isActiveIn = (status: string | null | undefined): boolean => status !== "inactive";

/** Returns the policies of a body, and the field that they are in. */
function policiesIn(body: {
  readonly policies?: readonly string[] | null | undefined;
  readonly policyIds?: readonly string[] | null | undefined;
}): readonly [field: string, policies: readonly string[]] {
  const { policies, policyIds } = body;
  return policyIds === undefined || policyIds === null ? ["policies", policies ?? []] : ["policyIds", policyIds];
}

/** @throws {Violations} naming each policy that cannot be attached, but for those of `attached` */
async function checkPolicies(
  access: AccessStore,
  field: string,
  policies: readonly string[],
  attached: readonly string[] = [],
): Promise<void> {
  const lines = [];
  for (const [index, policy] of policies.entries())
    if (!attached.includes(policy)) lines.push(...(await violationsOf(access, policy, `${field}.${index}`)));
  if (lines.length > 0) throw new Violations(lines);
}

async function violationsOf(access: Pick<AccessStore, "policy">, policy: string, path: string): Promise<string[]> {
  if (isRestricted(policy)) return [`${path}: ${policy} cannot be attached: its name starts with restricted-`];
  return (await access.policy(policy)) === undefined ? [`${path}: there is no policy ${policy}`] : [];
}

function publicServiceUser(user: ServiceUser, orgId: string): z.infer<typeof PublicServiceUser> {
  const { name, policies, isActive, createdAt, clientId, tokenCreatedAt: tokenCreated } = user;
  return {
    name,
    status: isActive ? "active" : "inactive",
    policies: [...policies],
    policyIds: [...policies],
    orgId,
    created_at: createdAt,
    ...defined({ clientId, tokenCreated }),
  };
}
