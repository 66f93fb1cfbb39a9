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
import type { FlowFilter, FlowOp, FlowSearch } from "./records.ts";
import type { NodeService } from "../nodes/service.ts";
import type { Clock } from "../../host/clock.ts";

const WINDOW_SECONDS = 2 * 3600;
const Protocol = FlowRecord.shape.protocol;
const Block = AddressBlock.meta({ description: "An address or a CIDR block" });

const Op = z.enum(["eq", "ne", "gt", "gte", "lt", "lte"]).optional();
const ProtocolOp = z.enum(["eq", "ne"]).optional().meta({ description: "`eq` by default" });
const PortOp = Op.meta({ description: "`eq` by default; with it port 0 matches port 0 only" });
const AddressOp = Op.meta({
  description:
    "`eq` (in the block) by default; `ne` includes unknown addresses, the others compare within the family of addresses",
});
const Port = numberIn(0, 65_535).optional().meta({ description: "0 matches any port, without an operator" });

// Ignoring a misspelt filter would return unwanted flows.
const Query = z.strictObject({
  sTime: Moment.optional().meta({ description: "Ended not before; ISO 8601. Two hours before `eTime` by default" }),
  eTime: Moment.optional().meta({ description: "Ended not after; ISO 8601. Now by default" }),
  eTimeOp: Op.meta({ description: "Compares the second in which it ended with that of `eTime`" }),
  nodeIDs: listOf(Uid, 1000),
  protocols: listOf(Protocol, 4),
  protocolsOp: ProtocolOp,
  source: Block.optional(),
  sourceOp: AddressOp,
  dest: Block.optional(),
  destOp: AddressOp,
  sourcePort: Port,
  sourcePortOp: PortOp,
  destPort: Port,
  destPortOp: PortOp,
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
const Bits = numberIn(0, 4_294_967_295).optional();
/** The query of the audit paths, with times in Unix seconds. */
const AuditQuery = z.object({
  sTime: Time.meta({ description: "Ended not before; Unix seconds. Two hours before `eTime` by default" }),
  eTime: Time.meta({ description: "Compared with the second in which it ended; Unix seconds. Now by default" }),
  eTimeOp: Op.meta({ description: "`lte` by default" }),
  protocol: Protocol.optional(),
  protocolOp: ProtocolOp,
  srcIp: Query.shape.source,
  srcIpOp: AddressOp,
  dstIp: Query.shape.dest,
  dstIpOp: AddressOp,
  srcPort: Port,
  srcPortOp: PortOp,
  dstPort: Port,
  dstPortOp: PortOp,
  srcNode: Text253.optional().meta({ description: "Name of the node of the source; `local` outside the overlay" }),
  dstNode: Text253.optional().meta({ description: "Name of the node of the destination; `local` outside the overlay" }),
  node: Uid.optional().meta({ description: "The node that reported it" }),
  tcpFlags: Bits.meta({ description: "Sum of bits that are all set: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32" }),
  flags: Bits.meta({ description: "Sum of bits that are all set" }),
  defunct: Query.shape.defunct,
  reverse: z
    .enum(["true", "false"])
    .optional()
    .meta({ description: "true: also flows whose source and destination match the other way round" }),
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
        requireValues(query);
        const filter = { ...filterOf(query), ...windowOf(query, clock.now() / 1000, query.eTimeOp) };
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
      requireValues(query);
      const filter = { ...auditFilterOf(query), ...windowOf(query, clock.now() / 1000, query.eTimeOp ?? "lte") };
      const asked = query.node === undefined ? undefined : [query.node];
      const nodeIds = await readableNodes(nodes, caller, access.permissions, asked);
      const { total, items } = await flows.find({ ...filter, ...defined({ nodeIds }) });
      return Response.json(items, { headers: { "x-total-count": String(total) } });
    },
  });
}

type Filters = Omit<FlowFilter, "from" | "to" | "ended" | "nodeIds">;

/** Refuses operators without their values. @throws {Violations} */
function requireValues(query: Readonly<Record<string, unknown>>): void {
  const lonely = Object.keys(query).filter((name) => name.endsWith("Op") && query[name.slice(0, -2)] === undefined);
  if (lonely.length > 0) throw new Violations(lonely.map((name) => `${name}: needs ${name.slice(0, -2)}`));
}

/** Returns the filters of an audit query, which has other names for those of `/v2/flow`, and more. */
function auditFilterOf(query: z.infer<typeof AuditQuery>): Filters {
  const { protocol, protocolOp: protocolsOp, srcIp: source, srcIpOp: sourceOp, dstIp: dest, dstIpOp: destOp } = query;
  const { srcPort: sourcePort, srcPortOp: sourcePortOp, dstPort: destPort, dstPortOp: destPortOp } = query;
  const { srcNode: sourceNode, dstNode: destNode, tcpFlags, flags } = query;
  const protocols = protocol === undefined ? undefined : [protocol];
  const compared = { protocols, protocolsOp, source, sourceOp, dest, destOp };
  const ports = { sourcePort, sourcePortOp, destPort, destPortOp };
  return {
    ...filterOf({ ...query, ...compared, ...ports }),
    ...defined({ sourceNode, destNode, tcpFlags, flags }),
    isEitherWay: query.reverse === "true",
  };
}

function filterOf(query: Omit<z.infer<typeof Query>, "nodeIDs" | "sTime" | "eTime" | "eTimeOp">): Filters {
  const { protocols, protocolsOp = "eq", source, dest, connector, flow, reasons, defunct, sort, limit, page } = query;
  const { sourceOp, destOp, sourcePortOp, destPortOp } = query;
  const selected = Protocol.options.filter((one) => protocols?.includes(one) === (protocolsOp === "eq"));
  return {
    ...(protocols === undefined ? {} : { protocols: selected }),
    ...defined({ source, dest, connector, flow, reasons }),
    ...defined({
      sourcePort: portOf(query.sourcePort, sourcePortOp),
      destPort: portOf(query.destPort, destPortOp),
    }),
    ops: defined({ source: sourceOp, dest: destOp, sourcePort: sourcePortOp, destPort: destPortOp }),
    ...(defunct === undefined ? {} : { isDefunct: defunct === "true" }),
    order: sort === "endTime:asc" ? "asc" : "desc",
    limit,
    offset: (page - 1) * limit,
  };
}

const portOf = (port: number | undefined, op: FlowOp | undefined): number | undefined =>
  port === 0 && op === undefined ? undefined : port;

/**
 * Returns the range of end times: from `sTime`, or two hours, to `eTime` or now. An operator compares with the second of `eTime`; `gt`, `gte`
 * and `ne` leave the range open until now. Pure.
 */
function windowOf(
  { sTime, eTime }: { readonly sTime?: number | undefined; readonly eTime?: number | undefined },
  nowSeconds: number,
  op?: FlowOp,
): Pick<FlowFilter, "from" | "to" | "ended"> {
  const isOpen = op === "gt" || op === "gte" || op === "ne";
  const last = isOpen ? nowSeconds : (eTime ?? nowSeconds);
  if (sTime !== undefined && sTime > last) throw new Violations([`sTime: is after ${isOpen ? "now" : "eTime"}`]);
  if (op === undefined || eTime === undefined) return { from: sTime ?? last - WINDOW_SECONDS, to: last };
  const second = Math.floor(eTime);
  const first = op === "eq" || op === "gt" || op === "gte" ? second : last - WINDOW_SECONDS;
  return { from: sTime ?? first, to: isOpen ? nowSeconds : second + 1, ended: { op, second } };
}
