import { z } from "zod";
import { openApiDocument } from "./openapi.ts";
import { route, type Route } from "./route.ts";

/** Routes of the API itself: health and OpenAPI document. `table` is evaluated when the document is requested. */
export function serviceRoutes(version: string, table: () => readonly Route[]): readonly Route[] {
  let document: string | undefined;
  return [
    route({
      method: "GET",
      path: "/healthz",
      operationId: "getHealth",
      summary: "Check that the API responds",
      tag: "Service",
      access: { to: "all" },
      answers: { 200: { description: "The API responds", schema: z.strictObject({ status: z.literal("ok") }) } },
      handle: () => Response.json({ status: "ok" }),
    }),
    route({
      method: "GET",
      path: "/openapi.json",
      operationId: "getOpenApi",
      summary: "Get this document",
      tag: "Service",
      access: { to: "all" },
      answers: { 200: { description: "OpenAPI 3.1", schema: z.looseObject({ openapi: z.string() }) } },
      handle: () => {
        document ??= JSON.stringify(openApiDocument(table(), version));
        return new Response(document, { headers: { "content-type": "application/json" } });
      },
    }),
  ];
}
