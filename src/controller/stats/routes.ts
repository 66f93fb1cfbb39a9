import { z } from "zod";
import { tgrn } from "../access/policies/permissions.ts";
import { RELATIVE_TIME, usageRange } from "./usage.ts";
import { readableNodes } from "../events/routes.ts";
import { Uid } from "../../protocol/values/values.ts";
import { forbidden, type Caller } from "../http/caller.ts";
import { Violations } from "../http/problem.ts";
import { hasTags, listOf, numberIn, TagFilter, UnixMoment } from "../http/query.ts";
import { route, type Route } from "../http/route.ts";
import { refusals, UsageBucketShape } from "../http/shapes.ts";
import type { NodeService } from "../nodes/service.ts";
import type { FlowSearch } from "./records.ts";
import type { Clock } from "../../host/clock.ts";

const READ: readonly string[] = ["nodes::read"];
const MINUTES_OF_A_YEAR = 527_040;
const Relative = z.string().max(32).regex(RELATIVE_TIME, "must be like 'now' or '-7 days'").optional();
const Absolute = UnixMoment.optional().meta({ description: "Unix seconds" });

export interface StatsRouteDeps {
  readonly nodes: NodeService;
  readonly flows: FlowSearch;
  readonly clock: Clock;
}

/** Route of the usage of nodes, named or with given tags, that the caller may read, from their flow records. */
export function statsRoutes({ nodes, flows, clock }: StatsRouteDeps): readonly Route[] {
  return [
    route({
      method: "GET",
      path: "/stats/realtime/usage",
      operationId: "getRealtimeUsage",
      summary: "Get traffic over a time range, in buckets; the last 24 hours by default",
      tag: "Statistics",
      access: { to: "kind", permissions: READ, kind: tgrn.node("") },
      query: z.object({
        start: Absolute,
        end: Absolute,
        relative_start: Relative,
        relative_end: Relative,
        intervalInMinutes: numberIn(1, MINUTES_OF_A_YEAR).default(60),
        filters: TagFilter,
        nodeIDs: listOf(Uid, 1000).meta({
          description: "Only these nodes, each of which the caller must be able to read",
        }),
      }),
      answers: {
        200: { description: "The buckets in order", schema: z.array(UsageBucketShape) },
        ...refusals,
      },
      handle: async ({ query, caller }) => {
        const range = usageRange(query, Math.floor(clock.now() / 1000));
        const asked = await askedNodes(nodes, caller, query);
        const readable = await readableNodes(nodes, caller, READ, asked);
        return Response.json(await flows.usage(range, readable));
      },
    }),
  ];
}

/**
 * Returns the nodes that are named and have the tags; undefined without both.
 * @throws {InputError} `forbidden` for a named node that the caller may not read; {Violations} for one that does not exist
 */
async function askedNodes(
  nodes: Pick<NodeService, "uids" | "tags">,
  caller: Caller,
  {
    nodeIDs,
    filters,
  }: { readonly nodeIDs?: readonly string[] | undefined; readonly filters?: readonly string[] | undefined },
): Promise<readonly string[] | undefined> {
  if (nodeIDs === undefined && filters === undefined) return undefined;
  const mayRead = await caller.among(READ);
  const refused = nodeIDs?.find((uid) => !mayRead(tgrn.node(uid)));
  if (refused !== undefined) throw forbidden(READ, tgrn.node(refused));
  const all = await nodes.uids();
  const known = new Set(all);
  const lines = (nodeIDs ?? []).flatMap((uid, at) =>
    known.has(uid) ? [] : [`nodeIDs.${at}: there is no node ${uid}`],
  );
  if (lines.length > 0) throw new Violations(lines);
  if (filters === undefined) return nodeIDs;
  const named = new Set(nodeIDs ?? all);
  const tagged = (await nodes.tags()).filter(({ tags }) => hasTags(tags, filters));
  return tagged.map(({ uid }) => uid).filter((uid) => named.has(uid));
}
