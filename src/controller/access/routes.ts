import { z } from "zod";
import { InputError } from "../../errors.ts";
import { Tags } from "../../protocol/values/values.ts";
import { builtinPolicies, RESERVED_PREFIXES } from "./policies/builtin.ts";
import { canonicalAction, isKnownAction, ORGANIZATION, permissions, TAGGED, tgrn } from "./policies/permissions.ts";
import { PolicyBody, PolicyName, sizeProblem, type Policy } from "./policies/policy.ts";
import { simulate, type HeldPolicy } from "./policies/simulate.ts";
import type { AccessStore } from "./store.ts";
import type { ResourceTags } from "../http/caller.ts";
import { Violations } from "../http/problem.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, Empty, notFound, PublicPolicy, refusals } from "../http/shapes.ts";
import type { ChangedItem } from "../events/records.ts";
import type { EventLog, EventParts } from "../events/service.ts";
import type { Transact } from "../store/transact.ts";
import type { Clock } from "../../host/clock.ts";
import { defined } from "../../lib/defined.ts";

const tag = "Policies";
const NameParams = z.object({ name: PolicyName });
const PolicyChange = PolicyBody.partial({ name: true }).meta({
  id: "PolicyChange",
  description: "`name` must match the path",
});

const PublicPermission = z
  .object({
    id: z.string(),
    family: z.string(),
    description: z.string(),
    aliases: z.array(z.string()).meta({ description: "Other spellings of the same permission" }),
  })
  .meta({
    id: "Permission",
    examples: [{ id: "nodes::read", family: "nodes", description: "Read nodes", aliases: ["node::read"] }],
  });

const EXAMPLE = {
  name: "operators",
  statements: [{ effect: "allow", actions: ["nodes::read"] }],
  resources: ["*"],
};

const Simulation = z
  .strictObject({
    serviceUser: z.string().max(128).optional(),
    user: z.string().max(254).optional().meta({ description: "Name of an API key" }),
    policies: z.array(PolicyBody).max(64).optional().meta({ description: "Policies that need not be stored" }),
    action: z.string().refine(isKnownAction, "is not a permission of this API: GET /v2/permission lists them"),
    resource: z.string().max(512).default(ORGANIZATION).meta({ description: "A resource name; `*` for none" }),
    tags: Tags.optional().meta({ description: "Tags in place of those of the node or cluster" }),
  })
  .refine(
    (body) => [body.serviceUser, body.user, body.policies].filter((given) => given !== undefined).length === 1,
    "needs one of serviceUser, user and policies",
  )
  .meta({
    id: "PolicySimulation",
    description:
      "Also requires `users::read` on the user and, for a node or cluster without `tags`, `nodes::read` on it",
    examples: [{ policies: [EXAMPLE], action: "nodes::read" }],
  });

const Simulated = z
  .object({
    decision: z.enum(["allow", "deny", "none"]).meta({ description: "`none`: refused, since nothing allows it" }),
    matched: z.array(
      z.object({
        policy: z.string(),
        source: z.string().meta({ description: "`user`, or `request` for given policies" }),
        statement: z.int().meta({ description: "Counted from 0" }),
        effect: z.enum(["allow", "deny"]),
      }),
    ),
    skipped: z.array(z.object({ policy: z.string(), reason: z.enum(["resource", "condition", "action"]) })),
  })
  .meta({
    id: "PolicySimulationResult",
    examples: [
      {
        decision: "allow",
        matched: [{ policy: EXAMPLE.name, source: "request", statement: 0, effect: "allow" }],
        skipped: [],
      },
    ],
  });

/** Stores of an open transaction that changes access. */
export interface AccessParts extends EventParts {
  readonly access: AccessStore;
  readonly agentTokens: { removeOf(user: string): Promise<void> };
}

export interface AccessRouteDeps {
  readonly store: Transact<AccessParts>;
  readonly access: AccessStore;
  readonly resourceTags: ResourceTags;
  readonly events: Pick<EventLog, "change">;
  readonly clock: Clock;
}

/** Returns a function that runs a change of a kind of items and records it by a user, in one transaction. */
export function recording({ store, events }: Pick<AccessRouteDeps, "store" | "events">, type: string) {
  return <T>(
    user: string,
    message: string,
    item: Pick<ChangedItem, "action"> & { readonly id: string },
    work: (access: AccessStore, tx: AccessParts) => Promise<T>,
  ): Promise<T> =>
    store.transact(async (tx) => {
      const result = await work(tx.access, tx);
      await events.change(tx, undefined, user, message, { type, ...item });
      return result;
    });
}

/** Routes of policies, of the permissions that they may name, and of their simulation. */
export function policyRoutes(deps: AccessRouteDeps): readonly Route[] {
  const { access, clock } = deps;
  const record = recording(deps, "policy");
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
      access: { to: "kind", permissions: ["permissions::read"], kind: tgrn.policy("") },
      answers: { 200: { description: "The policies the caller may read", schema: z.array(PublicPolicy) }, ...refusals },
      handle: async ({ caller }) => {
        const may = await caller.among(["permissions::read"]);
        return Response.json((await access.policies()).filter(({ name }) => may(tgrn.policy(name))));
      },
    }),
    route({
      method: "POST",
      path: "/v2/policy",
      operationId: "createPolicy",
      summary: "Create an access policy",
      tag,
      access: { to: "resource", permissions: ["permissions::modify"], resource: () => ORGANIZATION },
      body: { schema: PolicyBody },
      answers: {
        200: { description: "The policy as written, with `created_at`", schema: PublicPolicy },
        ...refusals,
        ...badBody,
      },
      handle: async ({ body, caller }) => {
        const reserved = RESERVED_PREFIXES.find((prefix) => body.name.startsWith(prefix));
        if (reserved !== undefined) throw new Violations([`name: must not begin with ${reserved}, which is reserved`]);
        const created = sized({ ...body, created_at: Math.floor(clock.now() / 1000) });
        const message = `Policy ${body.name} on ${listed(body.resources)} created`;
        await record(caller.name, message, { action: "create", id: body.name }, (tx) => tx.createPolicy(created));
        return Response.json(created);
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
      body: { schema: PolicyChange },
      answers: { ...policy, ...badBody },
      handle: async ({ params: { name }, body, caller }) => {
        if (body.name !== undefined && body.name !== name)
          throw new Violations([`name: must be ${name}; a policy cannot be renamed`]);
        checkOwn(name);
        const changed = await record(
          caller.name,
          `Policy ${name} on ${listed(body.resources)} replaced`,
          { action: "change", id: name },
          async (tx) => {
            const { created_at: _sent, ...wanted } = body;
            const createdAt = (await tx.policy(name))?.created_at;
            const replacement = sized({ ...wanted, name, ...defined({ created_at: createdAt }) });
            await tx.replacePolicy(replacement);
            return replacement;
          },
        );
        return Response.json(changed);
      },
    }),
    route({
      method: "DELETE",
      path: "/v2/policy/{name}",
      operationId: "deletePolicy",
      summary: "Delete an access policy; users and keys that it is attached to lose what it allows",
      tag,
      access: onPolicy("modify"),
      params: NameParams,
      answers: {
        200: { description: "Deleted", schema: Empty },
        ...refusals,
        ...notFound,
      },
      handle: async ({ params: { name }, caller }) => {
        checkOwn(name);
        const item = { action: "delete", id: name } as const;
        await record(caller.name, `Policy ${name} deleted`, item, (tx) => tx.deletePolicy(name));
        return Response.json({});
      },
    }),
    route({
      method: "POST",
      path: "/v2/policy/simulate",
      operationId: "simulatePolicies",
      summary: "Decide on one permission on one resource for a user or for given policies, and show why",
      tag,
      access: { to: "resource", permissions: ["permissions::read"], resource: () => ORGANIZATION },
      body: { schema: Simulation },
      answers: { 200: { description: "The decision", schema: Simulated }, ...refusals, ...badBody },
      handle: async ({ body, caller }) => {
        const { resource: name, serviceUser, policies } = body;
        if (policies === undefined) {
          await caller.require(
            ["users::read"],
            serviceUser === undefined ? ORGANIZATION : tgrn.serviceUser(serviceUser),
          );
        }
        // The decision on conditions shows the tags that count.
        if (body.tags === undefined && name.startsWith(TAGGED)) await caller.require(["nodes::read"], name);
        const { tags = await deps.resourceTags.of(name) } = body;
        return Response.json(simulate(await heldIn(access, body), canonicalAction(body.action), { name, tags }));
      },
    }),
    route({
      method: "GET",
      path: "/v2/permission",
      operationId: "listPermissions",
      summary: "List the permissions that a policy may name; `nodes::service:` takes the name of any trigger event",
      tag,
      access: { to: "kind", permissions: ["permissions::read"], kind: tgrn.policy("") },
      answers: { 200: { description: "The permissions", schema: z.array(PublicPermission) }, ...refusals },
      handle: () => Response.json(permissions),
    }),
  ];
}

/** @throws {InputError} `read-only` for a built-in policy */
function checkOwn(name: string): void {
  if (!builtinPolicies.has(name)) return;
  throw new InputError("read-only", `name: policy ${name} is built in and cannot be changed; make one of your own`);
}

/** Returns a policy that is not too large. @throws {Violations} */
function sized(policy: Policy): Policy {
  const problem = sizeProblem(policy);
  if (problem !== undefined) throw new Violations([problem]);
  return policy;
}

/** Returns the first items of a list, as text of an event. */
function listed(items: readonly string[]): string {
  const shown = items.slice(0, 4).map((item) => item.slice(0, 128));
  return items.length > shown.length ? `${shown.join(", ")} and ${items.length - shown.length} more` : shown.join(", ");
}

/** Returns the policies that a simulation is about. @throws {Violations} for an unknown user */
async function heldIn(
  access: AccessStore,
  { serviceUser, user, policies = [] }: z.infer<typeof Simulation>,
): Promise<readonly HeldPolicy[]> {
  const field = serviceUser === undefined ? "user" : "serviceUser";
  const name = serviceUser ?? user;
  if (name === undefined) return policies.map((policy) => ({ policy, source: "request" }));
  const found = await access.policiesOf(name, field === "user" ? "api-key" : "service-user");
  if (found === undefined)
    throw new Violations([`${field}: there is no ${field === "user" ? "user" : "service user"} ${name}`]);
  return found.map((policy) => ({ policy, source: "user" }));
}
