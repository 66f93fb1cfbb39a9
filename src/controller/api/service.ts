import { z } from "zod";
import { openApiDocument } from "./openapi.ts";
import { route, type Route } from "./route.ts";

/** Operations on the API itself: is it there, and what does it offer. `table` is asked for when the document is. */
export function serviceRoutes(version: string, table: () => readonly Route[]): readonly Route[] {
  let document: string | undefined;
  return [
    route({
      method: "GET",
      path: "/healthz",
      operationId: "getHealth",
      summary: "Whether the API answers",
      tag: "Service",
      access: { to: "all" },
      answers: { 200: { description: "It does", schema: z.strictObject({ status: z.literal("ok") }) } },
      handle: () => Response.json({ status: "ok" }),
    }),
    route({
      method: "GET",
      path: "/openapi.json",
      operationId: "getOpenApi",
      summary: "This document",
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
