import { z } from "zod";
import { SessionError } from "../../errors.ts";
import { PushedLogs } from "../../protocol/documents/bundle.ts";
import { NodePushLogs } from "../../protocol/triggers/bodies.ts";
import { Uid } from "../../protocol/values/values.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { nodeOf } from "../nodes/routes.ts";
import { numberIn } from "../http/query.ts";
import { route, type Route } from "../http/route.ts";
import { notFound, ofNode, refusals } from "../http/shapes.ts";
import { PUSH_LOGS_EVENT, PUSH_LOGS_MS, runInParts, type RunDeps, type TriggerRouteDeps } from "./routes.ts";

const { maxBytes } = NodePushLogs.shape;

/** Route that downloads the diagnostic bundle of a node. Neither the control plane nor the node stores it. */
export function nodeBundleRoutes(deps: RunDeps & Pick<TriggerRouteDeps, "nodes">): readonly Route[] {
  return [
    route({
      method: "POST",
      path: "/node/{nodeID}/bundle",
      operationId: "makeNodeBundle",
      summary: "Create a diagnostic bundle of a node, without secrets, and download it; takes some seconds",
      tag: "Triggers",
      access: {
        to: "resource",
        permissions: [`nodes::service:${PUSH_LOGS_EVENT}`, "nodes::remote-execute"],
        resource: ({ nodeID }) => tgrn.node(nodeID),
      },
      params: z.object({ nodeID: Uid }),
      query: z.object({
        maxBytes: numberIn(65_536, 50_000_000).optional().meta({ description: maxBytes.description }),
      }),
      answers: {
        200: {
          description: "The archive, a gzipped tar with a README",
          mediaTypes: ["application/gzip"],
          headers: {
            "content-disposition": { description: "Suggested file name", schema: z.string() },
          },
        },
        ...ofNode,
        ...refusals,
        ...notFound,
      },
      async handle({ params: { nodeID }, query, request, caller }) {
        if (!(await nodeOf(deps.nodes, nodeID)).isOnline) throw new SessionError("offline", "the node has no session");
        const size = query.maxBytes === undefined ? {} : { maxBytes: query.maxBytes };
        const order = {
          event: PUSH_LOGS_EVENT,
          body: { inline: true, ...size },
          wait: true,
          user: caller.name,
          deadlineMs: PUSH_LOGS_MS,
        };
        const answer = PushedLogs.safeParse(await runInParts(deps, nodeID, order, request.signal));
        if (answer.data?.archive === undefined)
          throw new SessionError("invalid-reply", "the node's response is not a bundle");
        const { name, archive } = answer.data;
        return new Response(Buffer.from(archive, "base64"), {
          headers: { "content-type": "application/gzip", "content-disposition": `attachment; filename="${name}"` },
        });
      },
    }),
  ];
}
