import { z } from "zod";
import { AddressBlock } from "../../protocol/values/values.ts";
import { FlowRecord } from "../../protocol/documents/telemetry.ts";
import { Text64, Text253, Uid } from "../../protocol/values/values.ts";
import { MAX_FLOWS_FOUND } from "./flows.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { readableNodes } from "../events/routes.ts";
import { Violations } from "../http/problem.ts";
import { listOf, Moment, numberIn, UnixMoment } from "../http/query.ts";
import { route, type Route } from "../http/route.ts";
import { PublicFlow, refusals } from "../http/shapes.ts";
import { defined } from "../../lib/defined.ts";
import type { FlowFilter, FlowSearch } from "./records.ts";
import type { NodeService } from "../nodes/service.ts";
import type { Clock } from "../../host/clock.ts";

const WINDOW_SECONDS = 2 * 3600;
const Block = AddressBlock.meta({ description: "An address or a CIDR block" });

// Ignoring a misspelt filter would return unwanted flows.
const Query = z.strictObject({
  sTime: Moment.optional().meta({ description: "Ended not before; ISO 8601. Two hours before `eTime` by default" }),
  eTime: Moment.optional().meta({ description: "Ended not after; ISO 8601. Now by default" }),
  nodeIDs: listOf(Uid, 1000),
  protocols: listOf(FlowRecord.shape.protocol, 4),
  source: Block.optional(),
  dest: Block.optional(),
  sourcePort: numberIn(0, 65_535).optional().meta({ description: "0 matches any port" }),
  destPort: numberIn(0, 65_535).optional().meta({ description: "0 matches any port" }),
  connector: Text253.optional(),
  flow: Text64.optional().meta({ description: "ID of a flow (`meta.flow`); matches the records of both ends" }),
  reasons: listOf(Text64, 64).meta({ description: "Reasons of rejected or terminated flows, as in `meta.reason`" }),
  defunct: z
    .enum(["true", "false"])
    .optional()
    .meta({ description: "true: only denied flows; false: only the others" }),
  sort: z.enum(["endTime:desc", "endTime:asc"]).default("endTime:desc"),
  limit: numberIn(1, MAX_FLOWS_FOUND).default(1000),
  page: numberIn(1, MAX_FLOWS_FOUND).default(1),
});

const Time = UnixMoment.optional();
/** The query of the audit paths, with times in Unix seconds. */
const AuditQuery = z.object({
  sTime: Time.meta({ description: "Ended not before; Unix seconds. Two hours before `eTime` by default" }),
  eTime: Time.meta({ description: "Ended not after; Unix seconds. Now by default" }),
  protocol: FlowRecord.shape.protocol.optional(),
  srcIp: Query.shape.source,
  dstIp: Query.shape.dest,
  srcPort: Query.shape.sourcePort,
  dstPort: Query.shape.destPort,
  node: Uid.optional().meta({ description: "The node that reported it" }),
  defunct: Query.shape.defunct,
  sort: Query.shape.sort,
  limit: Query.shape.limit,
  page: Query.shape.page,
});

export interface FlowRouteDeps {
  readonly nodes: NodeService;
  readonly flows: FlowSearch;
  readonly clock: Clock;
}

/** Routes of flow records, in pages; the header `x-total-count` has the number of matches, at most `MAX_FLOWS_FOUND`. */
export function flowRoutes({ nodes, flows, clock }: FlowRouteDeps): readonly Route[] {
  return [
    auditRoute({ nodes, flows, clock }, "/v2/audit/flow-logs", "listFlowLogs"),
    auditRoute({ nodes, flows, clock }, "/audit/tail/flow_logs", "tailFlowLogs"),
    route({
      method: "GET",
      path: "/v2/flow",
      operationId: "listFlows",
      summary:
        "Search flow records within a time window; the last two hours by default, at most 10,000 records on all pages",
      tag: "Events",
      access: { to: "kind", permissions: ["events::read"], kind: tgrn.node("") },
      query: Query,
      answers: page,
      handle: async ({ query, caller }) => {
        const nodeIds = await readableNodes(nodes, caller, ["events::read"], query.nodeIDs);
        const filter = filterOf(query, clock.now() / 1000);
        const { total, items } = await flows.find({ ...filter, ...defined({ nodeIds }) });
        return Response.json(items, { headers: { "x-total-count": String(total) } });
      },
    }),
  ];
}

const page = {
  200: {
    description: "One page of flow records",
    schema: z.array(PublicFlow),
    headers: {
      "x-total-count": {
        description: "Number of records on all pages, at most 10,000",
        schema: z.int().min(0).max(MAX_FLOWS_FOUND),
      },
    },
  },
  ...refusals,
};

/** Route of the same search under a path and the parameters of the audits. */
function auditRoute({ nodes, flows, clock }: FlowRouteDeps, path: string, operationId: string): Route {
  const access = { to: "kind", permissions: ["audits::read:flows"], kind: tgrn.node("") } as const;
  return route({
    method: "GET",
    path,
    operationId,
    summary: "Search flow records as `/v2/flow` does, with times in Unix seconds",
    tag: "Audits",
    isDeprecated: path.startsWith("/audit/"),
    access,
    query: AuditQuery,
    answers: page,
    handle: async ({ query, caller }) => {
      const { protocol, srcIp: source, dstIp: dest, srcPort: sourcePort, dstPort: destPort, node, ...same } = query;
      const asked = node === undefined ? undefined : [node];
      const nodeIds = await readableNodes(nodes, caller, access.permissions, asked);
      const protocols = protocol === undefined ? undefined : [protocol];
      const filter = filterOf({ ...same, protocols, source, dest, sourcePort, destPort }, clock.now() / 1000);
      const { total, items } = await flows.find({ ...filter, ...defined({ nodeIds }) });
      return Response.json(items, { headers: { "x-total-count": String(total) } });
    },
  });
}

function filterOf(query: Omit<z.infer<typeof Query>, "nodeIDs">, nowSeconds: number): FlowFilter {
  const {
    protocols,
    source,
    dest,
    sourcePort = 0,
    destPort = 0,
    connector,
    flow,
    reasons,
    defunct,
    sort,
    limit,
    page,
  } = query;
  const to = query.eTime ?? nowSeconds;
  const from = query.sTime ?? to - WINDOW_SECONDS;
  if (from > to) throw new Violations(["sTime: is after eTime"]);
  return {
    from,
    to,
    ...defined({ protocols, source, dest }),
    ...(sourcePort === 0 ? {} : { sourcePort }),
    ...(destPort === 0 ? {} : { destPort }),
    ...defined({ connector, flow, reasons }),
    ...(defunct === undefined ? {} : { isDefunct: defunct === "true" }),
    order: sort === "endTime:asc" ? "asc" : "desc",
    limit,
    offset: (page - 1) * limit,
  };
}
