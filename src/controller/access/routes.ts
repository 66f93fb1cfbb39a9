import { randomBytes, randomUUID } from "node:crypto";
import { z } from "zod";
import { InputError } from "../../errors.ts";
import { anyOf, tgrn } from "./policies/permissions.ts";
import { isRestricted, Policy, PolicyName, ServiceUserName } from "./policies/policy.ts";
import { sha256Hex, type AccessStore, type ServiceUser } from "./store.ts";
import { Violations } from "../http/problem.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, Empty, notFound, PublicPolicy, PublicServiceUser, refusals } from "../http/shapes.ts";
import type { EventLog, EventParts } from "../events/service.ts";
import type { Transact } from "../store/transact.ts";
import type { Clock } from "../../host/clock.ts";
import { defined } from "../../lib/defined.ts";

const NameParams = z.object({ name: PolicyName });
const UserParams = z.object({ name: ServiceUserName });

/** Stores of an open transaction that changes access. */
export interface AccessParts extends EventParts {
  readonly access: AccessStore;
  readonly agentTokens: { removeOf(user: string): Promise<void> };
}

export interface AccessRouteDeps {
  readonly store: Transact<AccessParts>;
  readonly access: AccessStore;
  readonly events: Pick<EventLog, "change">;
  readonly clock: Clock;
  /** Seconds for which the earlier credential of a service user stays valid after a new one is generated; 0: it ends at once. */
  readonly secretOverlapSeconds: number;
}

/** Returns a function that runs a change and records it by a user, in one transaction. */
function recording({ store, events }: Pick<AccessRouteDeps, "store" | "events">) {
  return <T>(user: string, message: string, work: (access: AccessStore, tx: AccessParts) => Promise<T>): Promise<T> =>
    store.transact(async (tx) => {
      const result = await work(tx.access, tx);
      await events.change(tx, undefined, user, message);
      return result;
    });
}

export function policyRoutes(deps: AccessRouteDeps): readonly Route[] {
  const { access } = deps;
  const record = recording(deps);
  const tag = "Policies";
  const onPolicy = (verb: "read" | "modify") =>
    ({
      to: "resource",
      permissions: [`permissions::${verb}`],
      resource: ({ name }: z.infer<typeof NameParams>) => tgrn.policy(name),
    }) as const;
  const policy = { 200: { description: "The policy", schema: PublicPolicy }, ...refusals, ...notFound };
  return [
    route({
      method: "GET",
      path: "/v2/policy",
      operationId: "listPolicies",
      summary: "List access policies",
      tag,
      access: { to: "kind", permission: "permissions::read", kind: tgrn.policy("") },
      answers: { 200: { description: "The policies the caller may read", schema: z.array(PublicPolicy) }, ...refusals },
      handle: async ({ caller }) =>
        Response.json(
          (await access.policies()).filter(({ name }) => caller.may(["permissions::read"], tgrn.policy(name))),
        ),
    }),
    route({
      method: "POST",
      path: "/v2/policy",
      operationId: "createPolicy",
      summary: "Create an access policy",
      tag,
      access: { to: "resource", permissions: ["permissions::modify"], resource: () => anyOf(tgrn.policy("")) },
      body: { schema: Policy },
      answers: {
        200: { description: "The policy, with normalized actions", schema: PublicPolicy },
        ...refusals,
        ...badBody,
      },
      handle: async ({ body, caller }) => {
        await record(caller.name, `Policy ${body.name} created`, (tx) => tx.createPolicy(body));
        return Response.json(body);
      },
    }),
    route({
      method: "GET",
      path: "/v2/policy/{name}",
      operationId: "getPolicy",
      summary: "Get an access policy",
      tag,
      access: onPolicy("read"),
      params: NameParams,
      answers: policy,
      handle: async ({ params: { name } }) => {
        const found = await access.policy(name);
        if (found === undefined) throw new InputError("not-found", `there is no policy ${name}`);
        return Response.json(found);
      },
    }),
    route({
      method: "PUT",
      path: "/v2/policy/{name}",
      operationId: "replacePolicy",
      summary: "Replace an access policy",
      tag,
      access: onPolicy("modify"),
      params: NameParams,
      body: {
        schema: Policy.partial({ name: true }).meta({ id: "PolicyChange", description: "`name` must match the path" }),
      },
      answers: { ...policy, ...badBody },
      handle: async ({ params: { name }, body, caller }) => {
        if (body.name !== undefined && body.name !== name)
          throw new Violations([`name: must be ${name}; a policy cannot be renamed`]);
        const changed: Policy = { ...body, name };
        await record(caller.name, `Policy ${name} replaced`, (tx) => tx.replacePolicy(changed));
        return Response.json(changed);
      },
    }),
    route({
      method: "DELETE",
      path: "/v2/policy/{name}",
      operationId: "deletePolicy",
      summary: "Delete an access policy that is not attached to any user",
      tag,
      access: onPolicy("modify"),
      params: NameParams,
      answers: {
        200: { description: "Deleted", schema: Empty },
        ...refusals,
        ...notFound,
      },
      handle: async ({ params: { name }, caller }) => {
        await record(caller.name, `Policy ${name} deleted`, (tx) => tx.deletePolicy(name));
        return Response.json({});
      },
    }),
  ];
}

/** Routes of service users, the accounts of programs. */
export function serviceUserRoutes(deps: AccessRouteDeps): readonly Route[] {
  const { access, clock, secretOverlapSeconds } = deps;
  const record = recording(deps);
  const tag = "Service users";
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
      access: { to: "kind", permission: "users::read", kind: tgrn.serviceUser("") },
      answers: {
        200: { description: "The service users the caller may read", schema: z.array(PublicServiceUser) },
        ...refusals,
      },
      handle: async ({ caller }) => {
        const listed = (await access.serviceUsers()).filter(({ name }) =>
          caller.may(["users::read"], tgrn.serviceUser(name)),
        );
        return Response.json(listed.map(publicServiceUser));
      },
    }),
    route({
      method: "POST",
      path: "/v2/service-user",
      operationId: "createServiceUser",
      summary: "Create a service user with its policies",
      tag,
      access: { to: "resource", permissions: ["users::modify"], resource: () => anyOf(tgrn.serviceUser("")) },
      body: {
        schema: z
          .strictObject({ ...UserBody, name: ServiceUserName })
          .meta({ description: "Also requires `permissions::modify` on each policy" }),
      },
      answers: {
        200: { description: "The service user", schema: PublicServiceUser },
        ...refusals,
        ...badBody,
      },
      handle: async ({ body, caller }) => {
        const { name, status } = body;
        const [field, policies] = policiesIn(body);
        for (const policy of policies) caller.require(["permissions::modify"], tgrn.policy(policy));
        const at = Math.floor(clock.now() / 1000);
        const created = await record(caller.name, `Service user ${name} created`, async (tx) => {
          await checkPolicies(tx, field, policies);
          return tx.createServiceUser(name, policies, at, status === "active");
        });
        return Response.json(publicServiceUser(created));
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
        schema: z.strictObject({ ...UserBody, name: ServiceUserName.optional() }).meta({
          description:
            "`name` must match the path. Also requires `permissions::modify` on each policy that is added and, to make an inactive user active, on each of its policies",
        }),
      },
      answers: {
        200: { description: "The service user", schema: PublicServiceUser },
        ...refusals,
        ...notFound,
        ...badBody,
      },
      handle: async ({ params: { name }, body, caller }) => {
        if (body.name !== undefined && body.name !== name)
          throw new Violations([`name: must be ${name}; a service user cannot be renamed`]);
        const [field, policies] = policiesIn(body);
        const isActive = body.status === "active";
        const changed = await record(caller.name, `Service user ${name} changed`, async (tx) => {
          const before = await tx.serviceUser(name);
          if (before === undefined) throw new InputError("not-found", `there is no service user ${name}`);
          const kept = before.isActive || !isActive ? new Set(before.policies) : new Set<string>();
          const given = policies.filter((policy) => !kept.has(policy));
          for (const policy of given) caller.require(["permissions::modify"], tgrn.policy(policy));
          await checkPolicies(tx, field, policies);
          return tx.changeServiceUser(name, { policies, isActive });
        });
        return Response.json(publicServiceUser(changed));
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
        await record(caller.name, `Service user ${name} deleted`, async (tx, { agentTokens }) => {
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
        return Response.json(publicServiceUser(found));
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
        const hadOne = await record(caller.name, `Credential of service user ${name} generated`, async (tx) => {
          const user = await tx.serviceUser(name);
          // A credential grants its user's permissions, so the caller must have all of them; replacing one's own gains nothing.
          const policies = caller.name === name ? [] : (user?.policies ?? []);
          for (const policy of policies) caller.require(["permissions::modify"], tgrn.policy(policy));
          await tx.putCredential(name, { clientId, secretSha256: sha256Hex(clientSecret), now, overlapMs });
          return user?.clientId !== undefined;
        });
        const overlap = hadOne && overlapMs > 0 ? { previousExpiresAt: Math.floor((now + overlapMs) / 1000) } : {};
        return Response.json({ clientId, clientSecret, secret: clientSecret, ...overlap });
      },
    }),
  ];
}

/** Parts of a service user that a caller writes; those that the controller assigns are ignored. */
const UserBody = {
  status: z.enum(["active", "inactive"]).default("active"),
  policies: z.array(PolicyName).max(64).optional(),
  policyIds: z.array(PolicyName).max(64).nullable().optional().meta({ description: "The same as `policies`" }),
  orgId: z.string().max(64).nullable().optional().meta({ description: "Ignored" }),
  clientId: z.string().max(64).optional().meta({ description: "Ignored" }),
  tokenCreated: z.number().optional().meta({ description: "Ignored" }),
  created_at: z.number().optional().meta({ description: "Ignored" }),
};

/** Returns the policies of a body, and the field that they are in. */
function policiesIn(body: {
  readonly policies?: readonly string[] | undefined;
  readonly policyIds?: readonly string[] | null | undefined;
}): readonly [field: string, policies: readonly string[]] {
  const { policies, policyIds } = body;
  return policyIds === undefined || policyIds === null ? ["policies", policies ?? []] : ["policyIds", policyIds];
}

/** @throws {Violations} naming each policy that cannot be attached */
async function checkPolicies(access: AccessStore, field: string, policies: readonly string[]): Promise<void> {
  const lines = [];
  for (const [index, policy] of policies.entries())
    lines.push(...(await violationsOf(access, policy, `${field}.${index}`)));
  if (lines.length > 0) throw new Violations(lines);
}

async function violationsOf(access: Pick<AccessStore, "policy">, policy: string, path: string): Promise<string[]> {
  if (isRestricted(policy)) return [`${path}: ${policy} cannot be attached: its name starts with restricted-`];
  return (await access.policy(policy)) === undefined ? [`${path}: there is no policy ${policy}`] : [];
}

function publicServiceUser(user: ServiceUser): z.infer<typeof PublicServiceUser> {
  const { name, policies, isActive, createdAt, clientId, tokenCreatedAt: tokenCreated } = user;
  return {
    name,
    status: isActive ? "active" : "inactive",
    policies: [...policies],
    policyIds: [...policies],
    created_at: createdAt,
    ...defined({ clientId, tokenCreated }),
  };
}
