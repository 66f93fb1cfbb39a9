import { z } from "zod";
import { InputError } from "../../errors.ts";
import { Fqdn } from "../../protocol/values/values.ts";
import { tgrn } from "../access/policies/permissions.ts";
import type { ClusterService } from "../clusters/service.ts";
import type { Caller } from "../http/caller.ts";
import { route, type Route } from "../http/route.ts";
import { notFound, refusals } from "../http/shapes.ts";
import type { NodeService } from "../nodes/service.ts";

const tag = "Organization";
const LOCAL_ACCOUNTS = "holdfast";
const OrgShape = z
  .object({
    uid: z.uuid(),
    domain: Fqdn.meta({ description: "Suffix of the FQDNs of nodes and clusters" }),
    name: z.string(),
    idp_provider: z.literal(LOCAL_ACCOUNTS).meta({ description: "Accounts are the controller's own" }),
    licenses: z
      .object({ appliances: z.int(), agents: z.int() })
      .meta({ description: "Number of registered nodes by type" }),
  })
  .meta({ id: "Organization" });
const DomainShape = z
  .object({ domain: Fqdn, config: z.object({}).meta({ description: "Settings of the domain that are set" }) })
  .meta({ id: "Domain" });
const TagShape = z.object({ name: z.string(), values: z.array(z.string()) }).meta({ id: "TagInUse" });

/** Tags are of nodes and clusters; only those that the caller may read count. */
const tagAccess = {
  to: "kind",
  permission: "nodes::read",
  kind: tgrn.node(""),
  otherKind: tgrn.cluster(""),
} as const;

export interface OrgRouteDeps {
  readonly nodes: NodeService;
  readonly clusters: ClusterService;
  readonly org: string;
  readonly domain: string;
}

/** Routes of the organization, its domain, and the tags in use. */
export function orgRoutes(deps: OrgRouteDeps): readonly Route[] {
  const { nodes, org, domain } = deps;
  return [
    route({
      method: "GET",
      path: "/org/mine",
      operationId: "getOrganization",
      summary: "Get the organization of the caller",
      tag,
      access: { to: "caller" },
      answers: { 200: { description: "The organization", schema: OrgShape }, ...refusals },
      handle: async () => {
        const licenses = { appliances: await nodes.countOf("Node"), agents: await nodes.countOf("Agent") };
        return Response.json({ uid: org, domain, name: domain, idp_provider: LOCAL_ACCOUNTS, licenses });
      },
    }),
    route({
      method: "GET",
      path: "/domain/{domain}",
      operationId: "getDomain",
      summary: "Get a domain",
      tag,
      access: { to: "resource", permissions: ["domains::read"], resource: ({ domain: name }) => tgrn.domain(name) },
      params: z.object({ domain: Fqdn }),
      answers: { 200: { description: "The domain", schema: DomainShape }, ...refusals, ...notFound },
      handle: ({ params }) => {
        if (params.domain !== domain) throw new InputError("not-found", `there is no domain ${params.domain}`);
        return Response.json({ domain, config: {} });
      },
    }),
    route({
      method: "GET",
      path: "/tags",
      operationId: "listTags",
      summary: "List the tags of nodes and clusters with their values",
      tag,
      access: tagAccess,
      answers: {
        200: { description: "The tags of what the caller may read, by name", schema: z.array(TagShape) },
        ...refusals,
      },
      handle: async ({ caller }) => Response.json([...(await tagsFor(deps, caller))].sort(byName).map(shownTag)),
    }),
    route({
      method: "GET",
      path: "/tags/{name}",
      operationId: "getTag",
      summary: "Get the values of a tag",
      tag,
      access: tagAccess,
      params: z.object({ name: z.string().max(128) }),
      answers: { 200: { description: "The tag", schema: TagShape }, ...refusals, ...notFound },
      handle: async ({ params: { name }, caller }) => {
        const values = (await tagsFor(deps, caller)).get(name);
        if (values === undefined) throw new InputError("not-found", `there is no tag ${name}`);
        return Response.json(shownTag([name, values]));
      },
    }),
  ];
}

type TagInUse = readonly [name: string, values: ReadonlySet<string>];

/** Returns the values of each tag of the nodes and clusters that a caller may read. */
async function tagsFor(
  { nodes, clusters }: OrgRouteDeps,
  caller: Caller,
): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const tagged = [
    ...(await nodes.tags()).map(({ uid, tags }) => ({ resource: tgrn.node(uid), tags })),
    ...(await clusters.all()).map(({ fqdn, tags }) => ({ resource: tgrn.cluster(fqdn), tags })),
  ];
  const found = new Map<string, Set<string>>();
  for (const { tags } of tagged.filter(({ resource }) => caller.may(["nodes::read"], resource))) {
    for (const [name, value] of Object.entries(tags)) {
      const values = found.get(name) ?? new Set();
      found.set(name, values.add(value));
    }
  }
  return found;
}

const byName = ([a]: TagInUse, [b]: TagInUse): number => (a < b ? -1 : 1);

const shownTag = ([name, values]: TagInUse): z.infer<typeof TagShape> => ({ name, values: [...values].sort() });
