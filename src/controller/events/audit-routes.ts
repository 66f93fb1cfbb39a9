import { z } from "zod";
import { Uid } from "../../protocol/values/values.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { HISTORY_SECONDS } from "./store.ts";
import { pageOf, pageResponse, RangeQuery, rangeOf, readableNodes, requireNode, type NodeLookup } from "./routes.ts";
import { route, type Route } from "../http/route.ts";
import { notFound, PublicAudit } from "../http/shapes.ts";
import { defined } from "../../lib/defined.ts";
import type { AuditRecord } from "./records.ts";
import type { EventLog } from "./service.ts";

const tag = "Events";

export interface AuditRouteDeps {
  readonly events: EventLog;
  readonly nodes: NodeLookup;
  /** UUID of the organization. */
  readonly org: string;
}

/** Routes of the audit trail, in pages; the header `x-total-count` has the number of all matches. */
export function auditRoutes({ events, nodes, org }: AuditRouteDeps): readonly Route[] {
  const audits = pageOf(PublicAudit, "One page of audits, newest first");
  const answer = ({ total, items }: { readonly total: number; readonly items: readonly AuditRecord[] }): Response =>
    pageResponse({ total, items: items.map((record) => publicAudit(record, org)) });
  return [
    route({
      method: "GET",
      path: "/v2/audit",
      operationId: "listAudits",
      summary: "List the audit trail of nodes within a time window",
      tag,
      access: { to: "kind", permissions: ["events::read"], kind: tgrn.node("") },
      query: RangeQuery,
      answers: audits,
      handle: async ({ query, caller }) => {
        const nodeIds = await readableNodes(nodes, caller, ["events::read"], undefined);
        return answer(await events.audits({ ...rangeOf(query), ...defined({ nodeIds }) }));
      },
    }),
    route({
      method: "GET",
      path: "/v2/audit/{nodeId}",
      operationId: "listNodeAudits",
      summary: "List the audit trail of a node within a time window",
      tag,
      access: { to: "resource", permissions: ["events::read"], resource: ({ nodeId }) => tgrn.node(nodeId) },
      params: z.object({ nodeId: Uid }),
      query: RangeQuery,
      answers: { ...audits, ...notFound },
      handle: async ({ params: { nodeId }, query }) => {
        const page = await events.audits({ ...rangeOf(query), nodeIds: [nodeId] });
        // Audits of a deleted node remain readable.
        if (page.total === 0) await requireNode(nodes, nodeId);
        return answer(page);
      },
    }),
  ];
}

/** Returns an audit record of a node as shown. */
export function publicAudit(record: AuditRecord, org: string): z.infer<typeof PublicAudit> {
  const { nodeId: uid, fqdn, category, value, timestamp, origin } = record;
  return { uid, fqdn, category, value, timestamp, expires: timestamp + HISTORY_SECONDS, org, origin };
}
