import { z } from "zod";
import { InputError } from "../../errors.ts";
import { AlertSection } from "../../protocol/sections/alert/alert.ts";
import { Fqdn, JsonObject } from "../../protocol/values/values.ts";
import { tgrn } from "../access/policies/permissions.ts";
import type { ClusterService } from "../clusters/service.ts";
import type { Caller } from "../http/caller.ts";
import { WARNING_HEADER } from "../config/not-applied.ts";
import { sectionForm } from "../config/section-forms.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, notFound, refusals, Seconds } from "../http/shapes.ts";
import { Violations } from "../http/problem.ts";
import { PortalAuth, Profile, type Organization } from "./service.ts";
import type { NodeService } from "../nodes/service.ts";

const tag = "Organization";
const OrgShape = Profile.extend({
  uid: z.uuid(),
  domain: Fqdn.meta({ description: "Suffix of the FQDNs of nodes and clusters" }),
  name: z.string(),
  idp_provider: z.string().meta({ description: "As in `/org/auth`" }),
  licenses: z
    .object({ appliances: z.int(), agents: z.int() })
    .meta({ description: "Number of registered nodes by type" }),
}).meta({ id: "Organization" });
/** Field that a write ignores, so that an organization can be written back as it was read. */
const ReadOnly = z.unknown().meta({ description: "Ignored" }).optional();
const ProfileWrite = z
  .strictObject({ ...Profile.shape, uid: ReadOnly, domain: ReadOnly, idp_provider: ReadOnly, licenses: ReadOnly })
  .meta({ id: "OrganizationWrite" });
const DomainShape = z
  .object({
    domain: Fqdn,
    config: z
      .object({ alert: JsonObject.optional(), apigw: JsonObject.optional() })
      .meta({ description: "Settings of the domain that are set" }),
  })
  .meta({ id: "Domain" });
const TagShape = z
  .object({
    name: z.string(),
    values: z.array(z.string()),
    created_at: Seconds.meta({
      description: "Creation of the oldest node or cluster that has the tag, its own or its cluster's, Unix seconds",
    }),
  })
  .meta({ id: "TagInUse", examples: [{ name: "site", values: ["berlin"], created_at: 1_760_000_000 }] });
/** Words for the built-in accounts that every client may write. */
const BUILT_IN = ["holdfast", "local"];
const WrittenAuth = PortalAuth.extend({
  idp_provider: z.union([z.enum(BUILT_IN), z.string()]).meta({
    description:
      "`holdfast` or `local`, or the word before `-token` in the caller's credential: the built-in accounts; or what is stored",
  }),
}).meta({ id: "PortalAuthWrite" });
/** A section of the domain that is stored and not applied. */
const ApigwSection = z.strictObject({
  gateway_node: z.string().max(256).nullish(),
  new_cloud_gateway: z.boolean().nullish(),
});

const warned = { [WARNING_HEADER]: { description: "Why the stored section has no effect", schema: z.string() } };
const notApplied = (section: string) => ({
  [WARNING_HEADER]: `section ${section} of the domain is stored but not applied: this version does not support it`,
});

/** Tags are of nodes and clusters; only those that the caller may read count. */
const tagAccess = {
  to: "kind",
  permissions: ["nodes::read"],
  kind: tgrn.node(""),
  otherKind: tgrn.cluster(""),
} as const;

export interface OrgRouteDeps {
  readonly nodes: NodeService;
  readonly clusters: ClusterService;
  readonly organization: Organization;
  readonly org: string;
  readonly domain: string;
}

/** Routes of the organization, its domain, and the tags in use. */
export function orgRoutes(deps: OrgRouteDeps): readonly Route[] {
  const { nodes, organization, org, domain } = deps;
  const ofIdps = { to: "resource", resource: () => tgrn.organization(org) } as const;
  const ofDomain = {
    to: "resource",
    resource: ({ domain: name }: { readonly domain: string }) => tgrn.domain(name),
  } as const;
  const mine = async (): Promise<z.infer<typeof OrgShape>> => {
    const licenses = { appliances: await nodes.countOf("Node"), agents: await nodes.countOf("Agent") };
    const { idp_provider } = await organization.auth();
    const { name = domain, ...profile } = await organization.profile();
    return { ...profile, uid: org, domain, name, idp_provider, licenses };
  };
  const requireDomain = (name: string): void => {
    if (name !== domain) throw new InputError("not-found", `there is no domain ${name}`);
  };
  return [
    route({
      method: "GET",
      path: "/org/mine",
      operationId: "getOrganization",
      summary: "Get the organization of the caller",
      tag,
      access: { to: "caller" },
      answers: { 200: { description: "The organization", schema: OrgShape }, ...refusals },
      handle: async () => Response.json(await mine()),
    }),
    route({
      method: "PUT",
      path: "/org/mine",
      operationId: "updateOrganization",
      summary: "Replace the name and contacts of the organization",
      tag,
      access: { to: "resource", permissions: ["domains::modify"], resource: () => tgrn.domain(domain) },
      body: { schema: ProfileWrite },
      answers: { 200: { description: "The organization", schema: OrgShape }, ...refusals, ...badBody },
      handle: async ({ body, caller }) => {
        await organization.setProfile(Profile.parse(body), caller.name);
        return Response.json(await mine());
      },
    }),
    route({
      method: "GET",
      path: "/org/auth",
      operationId: "getPortalAuth",
      summary: "Get how people sign in to the portal",
      tag,
      access: { ...ofIdps, permissions: ["identity-providers::read"] },
      answers: { 200: { description: "The settings", schema: PortalAuth }, ...refusals },
      handle: async () => Response.json(await organization.auth()),
    }),
    route({
      method: "PUT",
      path: "/org/auth",
      operationId: "setPortalAuth",
      summary: "Change how people sign in to the portal",
      tag,
      access: { ...ofIdps, permissions: ["identity-providers::modify"] },
      body: { schema: PortalAuth, described: WrittenAuth },
      answers: { 200: { description: "The settings", schema: PortalAuth }, ...refusals, ...badBody },
      handle: async ({ body, caller, request }) => {
        const { idp_provider: provider } = body;
        const words = [...BUILT_IN, ...schemeWordOf(request), (await organization.auth()).idp_provider];
        if (!words.includes(provider)) {
          const hint = `${BUILT_IN.join(" and ")} name the built-in accounts`;
          throw new Violations([`idp_provider: there is no identity provider ${provider}; ${hint}`]);
        }
        await organization.setAuth(body, caller.name);
        return Response.json(body);
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
      handle: async ({ params }) => {
        requireDomain(params.domain);
        return Response.json({ domain, config: await organization.config() });
      },
    }),
    route({
      method: "PUT",
      path: "/domain/{domain}/config/alert",
      operationId: "setDomainAlert",
      summary: "Replace the thresholds of the domain; they are stored and not applied",
      tag,
      access: { ...ofDomain, permissions: ["domains::configure:thresholds"] },
      params: z.object({ domain: Fqdn }),
      body: { schema: AlertSection, described: sectionForm("alert"), root: "alert" },
      answers: {
        200: { description: "The section", schema: sectionForm("alert"), headers: warned },
        ...refusals,
        ...notFound,
        ...badBody,
      },
      handle: async ({ params, body, caller }) => {
        requireDomain(params.domain);
        await organization.setSection("alert", body, caller.name);
        return Response.json(body, { headers: notApplied("alert") });
      },
    }),
    route({
      method: "PUT",
      path: "/domain/{domain}/config/apigw",
      operationId: "setDomainApigw",
      summary: "Replace the gateway of the domain's applications; it is stored and not applied",
      tag,
      access: { ...ofDomain, permissions: ["domains::configure:gateway"] },
      params: z.object({ domain: Fqdn }),
      body: { schema: ApigwSection, root: "apigw" },
      answers: {
        200: { description: "The section", schema: ApigwSection, headers: warned },
        ...refusals,
        ...notFound,
        ...badBody,
      },
      handle: async ({ params, body, caller }) => {
        requireDomain(params.domain);
        await organization.setSection("apigw", body, caller.name);
        return Response.json(body, { headers: notApplied("apigw") });
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
      params: z.object({
        name: z
          .string()
          .max(128)
          .meta({ examples: ["site"] }),
      }),
      answers: { 200: { description: "The tag", schema: TagShape }, ...refusals, ...notFound },
      handle: async ({ params: { name }, caller }) => {
        const tag = (await tagsFor(deps, caller)).get(name);
        if (tag === undefined) throw new InputError("not-found", `there is no tag ${name}`);
        return Response.json(shownTag([name, tag]));
      },
    }),
  ];
}

/** Returns the first word of a credential `<word>-token <id>:<secret>`, by which a client calls the built-in accounts, too. */
function schemeWordOf({ headers }: Request): readonly string[] {
  const [, word] = /^([a-z0-9]+)-token\s/.exec(headers.get("authorization") ?? "") ?? [];
  return word === undefined ? [] : [word];
}

interface Use {
  readonly values: Set<string>;
  readonly since: number;
}

type TagInUse = readonly [name: string, use: Use];

/** Returns the uses of each tag of the nodes and clusters that a caller may read. */
async function tagsFor({ nodes, clusters }: OrgRouteDeps, caller: Caller): Promise<ReadonlyMap<string, Use>> {
  const tagged = [
    ...(await nodes.tags()).map(({ uid, tags, createdAt }) => ({ resource: tgrn.node(uid), tags, createdAt })),
    ...(await clusters.all()).map(({ fqdn, tags, createdAt }) => ({ resource: tgrn.cluster(fqdn), tags, createdAt })),
  ];
  const may = await caller.among(["nodes::read"]);
  const found = new Map<string, Use>();
  for (const { tags, createdAt } of tagged.filter(({ resource }) => may(resource))) {
    for (const [name, value] of Object.entries(tags)) {
      const { values, since } = found.get(name) ?? { values: new Set(), since: createdAt };
      found.set(name, { values: values.add(value), since: Math.min(since, createdAt) });
    }
  }
  return found;
}

const byName = ([a]: TagInUse, [b]: TagInUse): number => (a < b ? -1 : 1);

const shownTag = ([name, { values, since }]: TagInUse): z.infer<typeof TagShape> => ({
  name,
  values: [...values].sort(),
  created_at: since,
});
