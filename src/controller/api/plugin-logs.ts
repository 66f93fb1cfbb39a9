import { z } from "zod";
import { InputError } from "../../errors.ts";
import { GatewayDetails } from "../../protocol/telemetry.ts";
import { Uid } from "../../protocol/values.ts";
import { DETAILS_SECONDS, MAX_DETAILS_FOUND } from "../model/gateway-details.ts";
import { tgrn } from "../model/permissions.ts";
import { nodeOf } from "./nodes.ts";
import { Violations } from "./problem.ts";
import { numberIn } from "./query.ts";
import { route, type ApiDeps, type Route } from "./route.ts";
import { notFound, refusals, violations } from "./shapes.ts";

const MAX_UNIX_SECONDS = 253_402_300_799;
const DAYS = DETAILS_SECONDS / 86_400;
const Instant = numberIn(0, MAX_UNIX_SECONDS);

const GatewayStats = GatewayDetails.extend({
  node: z.string().meta({ description: "The other node; on a gateway the one that measured" }),
  time: GatewayDetails.shape.time.meta({ description: "Start of the interval, Unix milliseconds" }),
}).meta({ id: "GatewayStats", description: "Round trips in one interval, in milliseconds" });

/** What the nodes tell of their tunnels. */
export function pluginLogRoutes({ fleet, gatewayDetails }: ApiDeps): readonly Route[] {
  return [
    route({
      method: "GET",
      path: "/v2/node/{nodeID}/plugin-logs/gateway-details",
      operationId: "getGatewayDetails",
      summary: `Round trips between a node and the gateways it dials, or of those who dial it, oldest first; kept ${DAYS} days`,
      tag: "Statistics",
      access: { to: "resource", permissions: ["nodes::read"], resource: ({ nodeID }) => tgrn.node(nodeID) },
      params: z.object({ nodeID: Uid }),
      query: z.strictObject({
        startDate: Instant.meta({ description: "Unix seconds" }),
        endDate: Instant.meta({ description: "Unix seconds, inclusive" }),
      }),
      answers: {
        200: {
          description: "One item with everything",
          schema: z.array(z.object({ stats: z.array(GatewayStats) })),
        },
        ...refusals,
        ...notFound,
        ...violations,
      },
      handle: ({ params: { nodeID }, query: { startDate, endDate } }) => {
        const { type } = nodeOf(fleet, nodeID);
        if (type === "Agent") throw new InputError("not-supported", "agents have no plugin logs");
        if (startDate > endDate) throw new Violations(["startDate: is after endDate"]);
        const stats = gatewayDetails.find(nodeID, startDate, endDate);
        if (stats === undefined) {
          throw new Violations([`endDate: the range holds more than ${MAX_DETAILS_FOUND} records`]);
        }
        return Response.json([{ stats }]);
      },
    }),
  ];
}
