import { z } from "zod";
import { HostError } from "../../errors.ts";
import { untilAborted } from "../../lib/async/until-aborted.ts";
import { Compressed } from "./compressed.ts";
import { OPENAPI_VERSION, openApiDocument } from "./openapi.ts";
import { route, type Route } from "./route.ts";
import { Problem } from "./shapes.ts";

/** Time limit of the store's answer, in milliseconds. */
const STORE_MS = 5000;

export interface ServiceRouteDeps {
  readonly version: string;
  /** Rejects while the store cannot be used. */
  readonly checkStore: () => Promise<void>;
}

/** Routes of the API itself: health and OpenAPI document. `table` is evaluated when the document is requested. */
export function serviceRoutes(
  { version, checkStore }: ServiceRouteDeps,
  table: () => readonly Route[],
): readonly Route[] {
  let document: Compressed | undefined;
  return [
    route({
      method: "GET",
      path: "/healthz",
      operationId: "getHealth",
      summary: "Check that the API and its store respond",
      tag: "Service",
      access: { to: "all" },
      answers: {
        200: { description: "Both respond", schema: z.strictObject({ status: z.literal("ok") }) },
        503: { description: "The store cannot be used, or has not answered within 5 seconds", schema: Problem },
      },
      handle: async () => {
        const late = AbortSignal.timeout(STORE_MS);
        try {
          await untilAborted(checkStore(), late);
        } catch (error) {
          if (!late.aborted) throw error;
          const message = `the store has not answered within ${STORE_MS / 1000} seconds`;
          throw new HostError("store-unavailable", message, { cause: error });
        }
        return Response.json({ status: "ok" });
      },
    }),
    route({
      method: "GET",
      path: "/openapi.json",
      operationId: "getOpenApi",
      summary: "Get this document",
      tag: "Service",
      access: { to: "all" },
      answers: {
        200: {
          description: "OpenAPI 3.1, compressed as `accept-encoding` asks",
          schema: z.looseObject({ openapi: z.string().meta({ examples: [OPENAPI_VERSION] }) }),
          headers: { etag: { description: "Entity tag for `if-none-match`", schema: z.string() } },
        },
        304: { description: "The document is the one that `if-none-match` names" },
      },
      handle: ({ request }) => {
        document ??= new Compressed(JSON.stringify(openApiDocument(table(), version)), "application/json");
        return document.respond(request);
      },
    }),
  ];
}
