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

const NameParams = z.object({ name: PolicyName });
const UserParams = z.object({ name: ServiceUserName });

/** Stores of an open transaction that changes access. */
export interface AccessParts extends EventParts {
  readonly access: AccessStore;
}

export interface AccessRouteDeps {
  readonly store: Transact<AccessParts>;
  readonly access: AccessStore;
  readonly events: Pick<EventLog, "change">;
  readonly clock: Clock;
}

/** Returns a function that runs a change and records it by a user, in one transaction. */
function recording({ store, events }: Pick<AccessRouteDeps, "store" | "events">) {
  return <T>(user: string, message: string, work: (access: AccessStore) => Promise<T>): Promise<T> =>
    store.transact(async (tx) => {
      const result = await work(tx.access);
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
  const { access, clock } = deps;
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
          .strictObject({ name: ServiceUserName, policies: z.array(PolicyName).max(64).default([]) })
          .meta({ description: "Also requires `permissions::modify` on each policy" }),
      },
      answers: {
        200: { description: "The service user", schema: PublicServiceUser },
        ...refusals,
        ...badBody,
      },
      handle: async ({ body: { name, policies }, caller }) => {
        for (const policy of policies) caller.require(["permissions::modify"], tgrn.policy(policy));
        const at = Math.floor(clock.now() / 1000);
        const created = await record(caller.name, `Service user ${name} created`, async (tx) => {
          const lines = [];
          for (const [index, policy] of policies.entries()) {
            lines.push(...(await violationsOf(tx, policy, `policies.${index}`)));
          }
          if (lines.length > 0) throw new Violations(lines);
          return tx.createServiceUser(name, policies, at);
        });
        return Response.json(publicServiceUser(created));
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
        "Generate a client ID and secret, replacing earlier ones. For another user, also requires `permissions::modify` on each of its policies",
      tag,
      access: onUser("modify"),
      params: UserParams,
      answers: {
        200: {
          description: "The credential; the secret is not shown again",
          schema: z
            .strictObject({ clientId: z.string(), clientSecret: z.string(), secret: z.string() })
            .meta({ id: "Credential", description: "`secret` and `clientSecret` are the same" }),
        },
        ...refusals,
        ...notFound,
      },
      handle: async ({ params: { name }, caller }) => {
        const clientId = randomUUID();
        const clientSecret = randomBytes(32).toString("base64url");
        await record(caller.name, `Credential of service user ${name} generated`, async (tx) => {
          // A credential grants its user's permissions, so the caller must have all of them; replacing one's own gains nothing.
          const policies = caller.name === name ? [] : ((await tx.serviceUser(name))?.policies ?? []);
          for (const policy of policies) caller.require(["permissions::modify"], tgrn.policy(policy));
          await tx.putCredential(name, clientId, sha256Hex(clientSecret));
        });
        return Response.json({ clientId, clientSecret, secret: clientSecret });
      },
    }),
  ];
}

async function violationsOf(access: Pick<AccessStore, "policy">, policy: string, path: string): Promise<string[]> {
  if (isRestricted(policy)) return [`${path}: ${policy} cannot be attached: its name starts with restricted-`];
  return (await access.policy(policy)) === undefined ? [`${path}: there is no policy ${policy}`] : [];
}

function publicServiceUser({ name, policies, createdAt, clientId }: ServiceUser): z.infer<typeof PublicServiceUser> {
  const credential = clientId === undefined ? {} : { clientId };
  return { name, policies: [...policies], created_at: createdAt, ...credential };
}
