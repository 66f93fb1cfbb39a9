import { z } from "zod";
import { InputError } from "../../errors.ts";
import { EventLevel } from "../../protocol/documents/telemetry.ts";
import { Text64, Text256, Uid } from "../../protocol/values/values.ts";
import { tgrn } from "../access/policies/permissions.ts";
import type { Caller } from "../http/caller.ts";
import { Violations } from "../http/problem.ts";
import { listOf, Moment, numberIn } from "../http/query.ts";
import { route, type Route } from "../http/route.ts";
import { notFound, PublicEvent, refusals } from "../http/shapes.ts";
import { defined } from "../../lib/defined.ts";
import type { EventFilter, EventRecord } from "./records.ts";
import type { EventLog } from "./service.ts";

const tag = "Events";
const Subject = PublicEvent.shape.subject;
const Sort = z.enum(["timestamp:desc", "timestamp:asc", "level:desc", "level:asc"]);

/** Pagination; the first page is 1. */
export const Page = {
  limit: numberIn(1, 1000).default(100),
  page: numberIn(1, 1_000_000).default(1),
};

const Period = {
  sTime: Moment.optional().meta({ description: "Not before; ISO 8601" }),
  eTime: Moment.optional().meta({ description: "Not after; ISO 8601" }),
};

const Window = {
  ...Period,
  eventTypes: listOf(Text64, 64),
  levels: listOf(EventLevel, 4),
  itemTypes: listOf(Subject, Subject.options.length).meta({ description: "Subject of the event" }),
  q: Text256.optional().meta({ description: "Text within the message" }),
  sort: Sort.default("timestamp:desc"),
  ...Page,
};
// Ignoring a misspelt filter would return unwanted events.
const NodeQuery = z.strictObject(Window);
const OrganizationQuery = z.strictObject({ ...Window, nodeIDs: listOf(Uid, 1000) });

/** Page and time range. */
export const RangeQuery = z.strictObject({ ...Period, ...Page });

/** Lookup of nodes for the routes of events, alerts, audits, flows and usage. */
export interface NodeLookup {
  uids(): Promise<readonly string[]>;
  get(uid: string): Promise<unknown>;
}

export interface EventRouteDeps {
  readonly events: EventLog;
  readonly nodes: NodeLookup;
}

/** Returns the part of a list that a page shows. */
export function pageAt({ limit, page }: { readonly limit: number; readonly page: number }): {
  readonly limit: number;
  readonly offset: number;
} {
  return { limit, offset: (page - 1) * limit };
}

/** Declares a page of a list. */
export const pageOf = (item: z.ZodType, description: string) => ({
  200: {
    description,
    schema: z.array(item),
    headers: { "x-total-count": { description: "Number of items on all pages", schema: z.int().min(0) } },
  },
  ...refusals,
});

export function pageResponse({
  total,
  items,
}: {
  readonly total: number;
  readonly items: readonly object[];
}): Response {
  return Response.json(items, { headers: { "x-total-count": String(total) } });
}

/** Routes of events, in pages; the header `x-total-count` has the number of all matches. */
export function eventRoutes({ events, nodes }: EventRouteDeps): readonly Route[] {
  const page = pageOf(PublicEvent, "One page of events");
  return [
    route({
      method: "GET",
      path: "/v2/event",
      operationId: "listEvents",
      summary: "List events within a time window",
      tag,
      access: { to: "kind", permissions: ["events::read"], kind: tgrn.node("") },
      query: OrganizationQuery,
      answers: { ...page },
      handle: async ({ query, caller }) => {
        const nodeIds = await readableNodes(nodes, caller, ["events::read"], query.nodeIDs);
        return eventPage(await events.find({ ...filterOf(query), ...defined({ nodeIds }) }));
      },
    }),
    route({
      method: "GET",
      path: "/v2/event/{nodeId}",
      operationId: "listNodeEvents",
      summary: "List the events of a node within a time window",
      tag,
      access: { to: "resource", permissions: ["events::read"], resource: ({ nodeId }) => tgrn.node(nodeId) },
      params: z.object({ nodeId: Uid }),
      query: NodeQuery,
      answers: { ...page, ...notFound },
      handle: async ({ params: { nodeId }, query }) => {
        const page = await events.find({ ...filterOf(query), nodeIds: [nodeId] });
        // Events of a deleted node remain readable.
        if (page.total === 0) await requireNode(nodes, nodeId);
        return eventPage(page);
      },
    }),
  ];
}

/** Returns the nodes whose records a caller may read, out of `asked`; undefined means all. */
export async function readableNodes(
  nodes: Pick<NodeLookup, "uids">,
  caller: Caller,
  permissions: readonly string[],
  asked: readonly string[] | undefined,
): Promise<readonly string[] | undefined> {
  if (caller.reach(permissions, tgrn.node("")) === "all") return asked;
  const may = await caller.among(permissions);
  return (asked ?? (await nodes.uids())).filter((uid) => may(tgrn.node(uid)));
}

function filterOf(query: z.infer<typeof NodeQuery>): EventFilter {
  const { eventTypes, levels, itemTypes, q, sort } = query;
  const [by, order] =
    sort === "level:desc" || sort === "level:asc" ? ["level" as const, sort] : ["timestamp" as const, sort];
  return {
    ...rangeOf(query),
    ...defined({ eventTypes, levels, subjects: itemTypes }),
    ...(q === undefined || q === "" ? {} : { text: q }),
    sort: { by, order: order.endsWith("asc") ? "asc" : "desc" },
  };
}

/** Returns the time range and page of a query. @throws {Violations} if the range ends before it starts */
export function rangeOf({ sTime, eTime, limit, page }: z.infer<typeof RangeQuery>): {
  readonly from?: number;
  readonly to?: number;
  readonly limit: number;
  readonly offset: number;
} {
  if (sTime !== undefined && eTime !== undefined && sTime > eTime) throw new Violations(["sTime: is after eTime"]);
  return {
    ...defined({ from: sTime, to: eTime }),
    ...pageAt({ limit, page }),
  };
}

function eventPage({ total, items }: { readonly total: number; readonly items: readonly EventRecord[] }): Response {
  return pageResponse({ total, items: items.map(publicEvent) });
}

/** Returns an event as shown: one without a node has no fields of a node. */
function publicEvent({ nodeId, nodeName, ...event }: EventRecord): z.infer<typeof PublicEvent> {
  return { ...event, ...(nodeId === "" ? {} : { nodeId, nodeName }) };
}

/** @throws {InputError} `not-found` */
export async function requireNode(nodes: Pick<NodeLookup, "get">, uid: string): Promise<void> {
  if ((await nodes.get(uid)) === undefined) throw new InputError("not-found", `there is no node ${uid}`);
}
