import { z } from "zod";
import { InputError } from "../../errors.ts";
import { ContainerOutput, GatewayDetails } from "../../protocol/documents/telemetry.ts";
import { Uid } from "../../protocol/values/values.ts";
import { OUTPUT_SECONDS } from "../containers/kept-output.ts";
import { DETAILS_SECONDS, MAX_DETAILS_FOUND } from "./gateway-details.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { nodeOf } from "../nodes/routes.ts";
import { Violations } from "../http/problem.ts";
import { Moment, numberIn, UnixMoment } from "../http/query.ts";
import { route, type Route } from "../http/route.ts";
import { notFound, refusals } from "../http/shapes.ts";
import type { NodeService } from "../nodes/service.ts";
import type { GatewayDetailsSearch } from "./records.ts";
import type { ContainerOutputSearch } from "../containers/records.ts";
import type { Clock } from "../../host/clock.ts";

const DAY_SECONDS = 86_400;
const OUTPUT_DAYS = OUTPUT_SECONDS / DAY_SECONDS;
/** Limit of output records in one response. */
const MAX_OUTPUT_FOUND = 2000;
const DAYS = DETAILS_SECONDS / 86_400;

const GatewayStats = GatewayDetails.extend({
  node: z.string().meta({ description: "The other node; on a gateway, the node that measured" }),
  time: GatewayDetails.shape.time.meta({ description: "Start of the interval, Unix milliseconds" }),
}).meta({ id: "GatewayStats", description: "Round trips in one interval, in milliseconds" });

export interface PluginLogRouteDeps {
  readonly nodes: NodeService;
  readonly gatewayDetails: GatewayDetailsSearch;
  readonly containerOutput: ContainerOutputSearch;
  readonly clock: Clock;
}

/** Routes of statistics and output that nodes report. */
export function pluginLogRoutes({
  nodes,
  gatewayDetails,
  containerOutput,
  clock,
}: PluginLogRouteDeps): readonly Route[] {
  return [
    route({
      method: "GET",
      path: "/v2/node/{nodeID}/plugin-logs/gateway-details",
      operationId: "getGatewayDetails",
      summary: `List round trips between a node and the gateways it dials, or the nodes that dial it, oldest first; kept for ${DAYS} days`,
      tag: "Statistics",
      access: { to: "resource", permissions: ["nodes::read"], resource: ({ nodeID }) => tgrn.node(nodeID) },
      params: z.object({ nodeID: Uid }),
      query: z.strictObject({
        startDate: UnixMoment.meta({ description: "Unix seconds" }),
        endDate: UnixMoment.meta({ description: "Unix seconds, inclusive" }),
      }),
      answers: {
        200: {
          description: "One item with all records",
          schema: z.array(z.object({ stats: z.array(GatewayStats) })),
        },
        ...refusals,
        ...notFound,
      },
      handle: async ({ params: { nodeID }, query: { startDate, endDate } }) => {
        const { type } = await nodeOf(nodes, nodeID);
        if (type === "Agent") throw new InputError("not-supported", "agents have no plugin logs");
        if (startDate > endDate) throw new Violations(["startDate: is after endDate"]);
        const stats = await gatewayDetails.find(nodeID, startDate, endDate);
        if (stats === undefined) {
          throw new Violations([`endDate: the range holds more than ${MAX_DETAILS_FOUND} records`]);
        }
        return Response.json([{ stats }]);
      },
    }),
    route({
      method: "GET",
      path: "/v2/node/{nodeID}/plugin-logs/container-output",
      operationId: "getContainerOutput",
      summary: `List the output of containers with saveOutput, oldest first; kept for ${OUTPUT_DAYS} days`,
      tag: "Edge compute",
      access: { to: "resource", permissions: ["node-exec::read"], resource: ({ nodeID }) => tgrn.node(nodeID) },
      params: z.object({ nodeID: Uid }),
      query: z.strictObject({
        container: z.string().min(1).max(253).optional().meta({ description: "Only this container, by id or name" }),
        sTime: Moment.optional().meta({ description: "Not before; ISO 8601. A day before `eTime` by default" }),
        eTime: Moment.optional().meta({ description: "Not after; ISO 8601. Now by default" }),
        limit: numberIn(1, MAX_OUTPUT_FOUND).default(1000).meta({ description: "Number of newest records" }),
      }),
      answers: {
        200: {
          description: "Output records in the order they were written",
          schema: z.array(ContainerOutput.meta({ id: "ContainerOutput", description: "An output record" })),
        },
        ...refusals,
        ...notFound,
      },
      handle: async ({ params: { nodeID }, query }) => {
        const { type } = await nodeOf(nodes, nodeID);
        if (type === "Agent") throw new InputError("not-supported", "agents have no containers");
        const { container, limit, eTime: to = Math.floor(clock.now() / 1000) } = query;
        const from = query.sTime ?? to - DAY_SECONDS;
        if (from > to) throw new Violations(["sTime: is after eTime"]);
        return Response.json(await containerOutput.find(nodeID, { container, from, to, limit }));
      },
    }),
  ];
}
