import { z } from "zod";
import { Fqdn, Text256 } from "../../protocol/values/values.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { Violations } from "../http/problem.ts";
import { UnixMoment } from "../http/query.ts";
import { route, type Route } from "../http/route.ts";
import { PublicAudit, refusals, Seconds } from "../http/shapes.ts";
import { defined } from "../../lib/defined.ts";
import { HISTORY_SECONDS } from "./store.ts";
import { publicAudit } from "./audit-routes.ts";
import { csv } from "./csv.ts";
import type { OrgAudit, OrgAuditFilter } from "./records.ts";
import { Page, pageAt, pageOf, pageResponse, readableNodes, type NodeLookup } from "./routes.ts";
import type { OrgAuditStore } from "./org-audit-store.ts";
import type { EventLog } from "./service.ts";

const tag = "Audits";
/** Most records of a download. */
const MAX_DOWNLOAD = 10_000;
const Time = UnixMoment.optional();
const Period = {
  timestamp: Time.meta({ description: "Not before; Unix seconds" }),
  eTime: Time.meta({ description: "Not after; Unix seconds" }),
};
const ConfigFilter = {
  ...Period,
  itemID: Text256.optional(),
  itemType: Text256.optional().meta({
    description: "`node`, `cluster`, `policy`, `serviceUser`, `agentToken`, `certificate`, `domain`, `organization`",
  }),
  auditEvent: z.enum(["create", "change", "delete", "action"]).optional(),
  user: Text256.optional(),
  ip: Text256.optional(),
  details: Text256.optional().meta({ description: "Text within the message; upper and lower case differ" }),
};
const UserFilter = { ...Period, user: Text256.optional(), ip: Text256.optional() };
const NodeFilter = { ...Period, FQDN: Fqdn.optional() };

const PublicConfigAudit = z
  .object({
    uid: z.string(),
    auditType: z.enum(["create", "change", "delete", "action"]),
    itemType: z.string(),
    itemId: z.string(),
    message: z.string(),
    userName: z.string(),
    ip: z.string(),
    timestamp: Seconds,
    org: z.string(),
    type: z.literal("AuditLog"),
  })
  .meta({ id: "ConfigAudit" });
const PublicUserAudit = z
  .object({
    uid: z.string(),
    userId: z.string().meta({ description: "Empty for a failed authentication" }),
    message: z.string(),
    source: z.literal("api"),
    ip: z.string(),
    timestamp: Seconds,
    expires: Seconds,
    orgId: z.string(),
    type: z.literal("AuthAudit"),
  })
  .meta({ id: "UserAudit" });

export interface OrgAuditRouteDeps {
  readonly orgAudits: Pick<OrgAuditStore, "find">;
  readonly events: Pick<EventLog, "audits">;
  readonly nodes: Pick<NodeLookup, "uids"> & { byFqdn(fqdn: string): Promise<{ readonly uid: string } | undefined> };
  /** UUID of the organization. */
  readonly org: string;
}

interface Range {
  readonly timestamp?: number | undefined;
  readonly eTime?: number | undefined;
}

interface Found<T> {
  readonly total: number;
  readonly items: readonly T[];
}

/** Routes of the audits of changes, authentications and nodes: the latest in pages, and all as CSV. */
export function orgAuditRoutes({ orgAudits, events, nodes, org }: OrgAuditRouteDeps): readonly Route[] {
  const onOrg = { to: "resource", resource: () => tgrn.organization(org) } as const;
  const onNodes = { to: "kind", permissions: ["audits::read:node"], kind: tgrn.node("") } as const;
  const changes = async (query: z.infer<ReturnType<typeof z.object<typeof ConfigFilter>>>, page: OrgAuditPage) => {
    const { itemID: itemId, itemType, auditEvent: auditType, user: userName, ip, details } = query;
    const filter = { ...rangeOf(query), ...defined({ itemId, itemType, auditType, userName, ip, details }) };
    const { total, items } = await orgAudits.find({ kind: "config", ...filter, ...page });
    return { total, items: items.map((audit) => publicChange(audit, org)) };
  };
  const authentications = async (
    query: z.infer<ReturnType<typeof z.object<typeof UserFilter>>>,
    page: OrgAuditPage,
  ) => {
    const { user: userName, ip } = query;
    const filter = { ...rangeOf(query), ...defined({ userName, ip }) };
    const { total, items } = await orgAudits.find({ kind: "user", ...filter, ...page });
    return { total, items: items.map((audit) => publicAuthentication(audit, org)) };
  };
  return [
    route({
      method: "GET",
      path: "/audit/tail/config",
      operationId: "tailConfigAudits",
      summary: "List the latest changes through the API: who changed what",
      tag,
      access: { ...onOrg, permissions: ["audits::read:config"] },
      query: z.object({ ...ConfigFilter, ...Page }),
      answers: pageOf(PublicConfigAudit, PAGE),
      handle: async ({ query }) => pageResponse(await changes(query, pageAt(query))),
    }),
    route({
      method: "GET",
      path: "/audit/download/config",
      operationId: "downloadConfigAudits",
      summary: "Download changes through the API as CSV; at most the latest 10,000",
      tag,
      access: { ...onOrg, permissions: ["audits::read:config"] },
      query: z.object(ConfigFilter),
      answers: csvAnswer,
      handle: async ({ query }) => csvResponse("config", PublicConfigAudit, await changes(query, WHOLE)),
    }),
    route({
      method: "GET",
      path: "/audit/tail/user",
      operationId: "tailUserAudits",
      summary: "List the latest authentications: the first of each user and address within an hour",
      tag,
      access: { ...onOrg, permissions: ["audits::read:user"] },
      query: z.object({ ...UserFilter, ...Page }),
      answers: pageOf(PublicUserAudit, PAGE),
      handle: async ({ query }) => pageResponse(await authentications(query, pageAt(query))),
    }),
    route({
      method: "GET",
      path: "/audit/download/user",
      operationId: "downloadUserAudits",
      summary: "Download authentications as CSV; at most the latest 10,000",
      tag,
      access: { ...onOrg, permissions: ["audits::read:user"] },
      query: z.object(UserFilter),
      answers: csvAnswer,
      handle: async ({ query }) => csvResponse("user", PublicUserAudit, await authentications(query, WHOLE)),
    }),
    route({
      method: "GET",
      path: "/audit/tail/node",
      operationId: "tailNodeAudits",
      summary: "List the latest audits of the nodes that the caller may read",
      tag,
      access: onNodes,
      query: z.object({ ...NodeFilter, ...Page }),
      answers: pageOf(PublicAudit, PAGE),
      handle: async ({ query, caller }) => {
        const nodeIds = await readableNodes(nodes, caller, onNodes.permissions, await namedNode(nodes, query.FQDN));
        return pageResponse(await ofNodes(events, { ...rangeOf(query), ...defined({ nodeIds }) }, pageAt(query), org));
      },
    }),
    route({
      method: "GET",
      path: "/audit/download/node",
      operationId: "downloadNodeAudits",
      summary: "Download audits of the nodes that the caller may read as CSV; at most the latest 10,000",
      tag,
      access: onNodes,
      query: z.object(NodeFilter),
      answers: csvAnswer,
      handle: async ({ query, caller }) => {
        const nodeIds = await readableNodes(nodes, caller, onNodes.permissions, await namedNode(nodes, query.FQDN));
        const found = await ofNodes(events, { ...rangeOf(query), ...defined({ nodeIds }) }, WHOLE, org);
        return csvResponse("node", PublicAudit, found);
      },
    }),
  ];
}

type OrgAuditPage = Pick<OrgAuditFilter, "limit" | "offset">;
const WHOLE: OrgAuditPage = { limit: MAX_DOWNLOAD, offset: 0 };

/** @throws {Violations} if the range ends before it starts */
function rangeOf({ timestamp, eTime }: Range): { readonly from?: number; readonly to?: number } {
  if (timestamp !== undefined && eTime !== undefined && timestamp > eTime)
    throw new Violations(["timestamp: is after eTime"]);
  return defined({ from: timestamp, to: eTime });
}

/** Returns the node with an FQDN as a list. @throws {Violations} if there is none */
async function namedNode(nodes: OrgAuditRouteDeps["nodes"], fqdn: string | undefined): Promise<string[] | undefined> {
  if (fqdn === undefined) return undefined;
  const node = await nodes.byFqdn(fqdn);
  if (node === undefined) throw new Violations([`FQDN: there is no node ${fqdn}`]);
  return [node.uid];
}

async function ofNodes(
  events: Pick<EventLog, "audits">,
  filter: { readonly from?: number; readonly to?: number; readonly nodeIds?: readonly string[] },
  page: OrgAuditPage,
  org: string,
): Promise<Found<z.infer<typeof PublicAudit>>> {
  const { total, items } = await events.audits({ ...filter, ...page });
  return { total, items: items.map((record) => publicAudit(record, org)) };
}

function publicChange(audit: OrgAudit, org: string): z.infer<typeof PublicConfigAudit> {
  const { uid, itemType, itemId, message, userName, ip, timestamp } = audit;
  const auditType = PublicConfigAudit.shape.auditType.parse(audit.auditType);
  return { uid, auditType, itemType, itemId, message, userName, ip, timestamp, org, type: "AuditLog" };
}

function publicAuthentication(audit: OrgAudit, orgId: string): z.infer<typeof PublicUserAudit> {
  const { uid, userName: userId, message, ip, timestamp } = audit;
  const expires = timestamp + HISTORY_SECONDS;
  return { uid, userId, message, source: "api", ip, timestamp, expires, orgId, type: "AuthAudit" };
}

const PAGE = "One page, newest first";

const csvAnswer = {
  200: { description: "A table with a header (RFC 4180), newest first", mediaTypes: ["text/csv"] },
  ...refusals,
} as const;

function csvResponse(name: string, schema: z.ZodObject, { items }: Found<object>): Response {
  return new Response(csv(Object.keys(schema.shape), items), {
    headers: {
      "content-type": "text/csv; charset=utf-8",
      "content-disposition": `attachment; filename="audit-${name}.csv"`,
    },
  });
}
