import { z } from "zod";
import { Uid } from "../../protocol/values/values.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { Page, pageAt, readableNodes, requireNode, type NodeLookup } from "./routes.ts";
import { UnixMoment } from "../http/query.ts";
import { route, type Route } from "../http/route.ts";
import { Empty, LegacyAlert, notFound, PublicAlert, refusals } from "../http/shapes.ts";
import { defined } from "../../lib/defined.ts";
import type { EventFilter, EventRecord } from "./records.ts";
import type { Alerts } from "./alerts.ts";
import type { EventLog } from "./service.ts";

const tag = "Alerts";
const NodeParams = z.object({ nodeID: Uid });
const PageQuery = z.strictObject(Page);
/** Rejects all parameters, as other lists reject unknown ones. */
const NoQuery = z.strictObject({});
const onNode = {
  to: "resource",
  permissions: ["alerts::read"],
  resource: ({ nodeID }: { readonly nodeID: string }) => tgrn.node(nodeID),
} as const;
const onNodes = { to: "kind", permissions: ["alerts::read"], kind: tgrn.node("") } as const;

// RFC 9745: deprecated since the start of 2026; RFC 8288 links the replacement.
const DEPRECATION = { deprecation: "@1767225600", link: '</v2/event>; rel="successor-version"' };

export interface AlertRouteDeps {
  readonly alerts: Alerts;
  readonly events: EventLog;
  readonly nodes: NodeLookup;
}

/** Routes of open alerts, and the deprecated form of events. */
export function alertRoutes({ alerts, events, nodes }: AlertRouteDeps): readonly Route[] {
  const legacy = { 200: { description: "Events, newest first", schema: z.array(LegacyAlert) }, ...refusals };
  const open = { 200: { description: "Open alerts", schema: z.array(PublicAlert) }, ...refusals };
  return [
    route({
      method: "GET",
      path: "/alert/{nodeID}",
      operationId: "listNodeAlertsV1",
      summary: "List the events of a node, newest first",
      tag,
      access: onNode,
      params: NodeParams,
      query: PageQuery,
      answers: { ...legacy, ...notFound },
      handle: async ({ params: { nodeID }, query }) => {
        await requireNode(nodes, nodeID);
        const { items } = await events.find({ ...newestFirst(query), nodeIds: [nodeID] });
        return Response.json(items.map(legacyAlert));
      },
    }),
    route({
      method: "GET",
      path: "/alert",
      operationId: "listAlertsV1",
      summary: "List events, newest first; use /v2/event",
      tag,
      isDeprecated: true,
      access: onNodes,
      query: PageQuery.extend({
        timestamp: UnixMoment.optional().meta({ description: "Not before; Unix seconds" }),
      }),
      answers: { ...legacy },
      handle: async ({ query, caller }) => {
        const nodeIds = await readableNodes(nodes, caller, ["alerts::read"], undefined);
        const filter = { ...newestFirst(query), ...defined({ nodeIds, from: query.timestamp }) };
        const { items } = await events.find(filter);
        return Response.json(items.map(legacyAlert), { headers: DEPRECATION });
      },
    }),
    route({
      method: "GET",
      path: "/v2/alert",
      operationId: "listAlerts",
      summary: "List the open alerts of the organization",
      tag,
      access: onNodes,
      query: NoQuery,
      answers: { ...open },
      handle: async ({ caller }) => {
        const may = await caller.among(["alerts::read"]);
        return Response.json((await alerts.find()).filter(({ nodeId }) => may(tgrn.node(nodeId))));
      },
    }),
    route({
      method: "GET",
      path: "/v2/alert/{nodeID}",
      operationId: "listNodeAlerts",
      summary: "List the open alerts of a node",
      tag,
      access: onNode,
      params: NodeParams,
      query: NoQuery,
      answers: { ...open, ...notFound },
      handle: async ({ params: { nodeID } }) => {
        await requireNode(nodes, nodeID);
        return Response.json(await alerts.find(nodeID));
      },
    }),
    route({
      method: "DELETE",
      path: "/v2/alert/{nodeID}/{alertType}",
      operationId: "dismissAlert",
      summary:
        "Resolve and dismiss one type of alert of a node, if it is open; `Identity Shared` also requires `nodes::manage`",
      tag,
      access: onNode,
      params: z.object({
        nodeID: Uid,
        alertType: z.string().min(1).max(64).meta({ description: "The event type, for example `Node Disconnect`" }),
      }),
      answers: { 200: { description: "Dismissed", schema: Empty }, ...refusals, ...notFound },
      handle: async ({ params: { nodeID, alertType }, caller }) => {
        // Dismissing it releases a held identity.
        if (alertType === "Identity Shared") await caller.require(["nodes::manage"], tgrn.node(nodeID));
        if (!(await alerts.dismiss(nodeID, alertType, caller.name))) await requireNode(nodes, nodeID);
        return Response.json({});
      },
    }),
  ];
}

function newestFirst(query: z.infer<typeof PageQuery>): EventFilter {
  return { sort: { by: "timestamp", order: "desc" }, ...pageAt(query) };
}

function legacyAlert(event: EventRecord): z.infer<typeof LegacyAlert> {
  const { uid, eventType, message, nodeId, nodeName, timestamp } = event;
  return { uid, type: eventType, alert_message: message, node_id: nodeId, node: nodeName, timestamp };
}
