import { z } from "zod";
import { SessionError } from "../../errors.ts";
import { Uid } from "../../protocol/values/values.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { nodeOf } from "../nodes/routes.ts";
import { ALIAS } from "../http/api.ts";
import { route, type Route } from "../http/route.ts";
import { notFound, Problem, refusals } from "../http/shapes.ts";
import type { NodeService } from "../nodes/service.ts";
import type { Terminals } from "./terminals.ts";

/** Path that callers may upgrade to a WebSocket. */
export const TERMINAL_PATH = new RegExp(`^(?:${ALIAS})?/node/[^/]+/trigger/container-exec$`);

const Cells = z
  .string()
  .regex(/^\d{1,4}$/, "must be a whole number")
  .transform(Number)
  .pipe(z.int().min(1).max(1000));

export interface TerminalRouteDeps {
  readonly nodes: NodeService;
  readonly terminals: Terminals;
}

export function terminalRoutes({ nodes, terminals }: TerminalRouteDeps): readonly Route[] {
  return [
    route({
      method: "GET",
      path: "/node/{nodeID}/trigger/container-exec",
      operationId: "openTerminal",
      summary: "Open a terminal in a container of a node, as a WebSocket",
      tag: "Triggers",
      access: {
        to: "resource",
        permissions: ["node-exec::compute", "nodes::service:container-exec", "nodes::remote-execute"],
        resource: ({ nodeID }) => tgrn.node(nodeID),
      },
      params: z.object({ nodeID: Uid }),
      query: z.object({
        container: z.string().min(1).max(253).meta({ description: "The container's name in the configuration" }),
        cols: Cells.optional().meta({ description: "Columns of the terminal, 80 by default" }),
        rows: Cells.optional().meta({ description: "Rows of the terminal, 24 by default" }),
      }),
      answers: {
        101: {
          description:
            "A WebSocket: binary frames are the terminal's bytes; text frames are one JSON object each, " +
            '`{"type":"resize","cols":N,"rows":N}` and `{"type":"close"}` (^D) to the node, and at the end ' +
            '`{"type":"exit","code":N}` or `{"type":"error","code":"…","message":"…"}` to the caller',
        },
        426: { description: "The request is not a WebSocket upgrade", schema: Problem },
        500: { description: "The node failed", schema: Problem },
        502: { description: "The container's engine failed", schema: Problem },
        503: { description: "The node is offline", schema: Problem },
        504: { description: "The node did not answer in time", schema: Problem },
        ...refusals,
        ...notFound,
      },
      async handle({ params: { nodeID }, query, request, caller, upgrade }) {
        if (!(await nodeOf(nodes, nodeID)).isOnline) throw new SessionError("offline", "the node has no session");
        if (upgrade === undefined) {
          const message = "a terminal requires a WebSocket upgrade";
          const problem = { error: message, code: "upgrade-required", message };
          return Response.json(problem, { status: 426, headers: { upgrade: "websocket" } });
        }
        const { container, cols = 80, rows = 24 } = query;
        const wanted = { container, cols, rows, user: caller.name };
        upgrade(await terminals.open(nodeID, wanted, request.signal));
        return new Response(null);
      },
    }),
  ];
}
