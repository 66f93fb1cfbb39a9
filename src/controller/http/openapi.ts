import { z } from "zod";
import type { AnswerSpec, Route } from "./route.ts";
import { defined } from "../../lib/defined.ts";

type Json = Record<string, unknown>;

/** Describes all routes as an OpenAPI 3.1 document; named schemas become components. */
export function openApiDocument(routes: readonly Route[], version: string): Json {
  const components = new Map<string, unknown>();
  const paths = new Map<string, Json>();
  for (const route of routes) {
    const item = paths.get(route.path) ?? {};
    paths.set(route.path, { ...item, [route.method.toLowerCase()]: operationOf(route, components) });
  }
  return {
    openapi: "3.1.1",
    info: { title: "Network Management API", version: "1.0.0", description: `Holdfast ${version}` },
    servers: [{ url: "/" }],
    security: [{ JWTAuthorizer: [] }],
    paths: Object.fromEntries(paths),
    components: {
      schemas: Object.fromEntries([...components].sort(([a], [b]) => (a < b ? -1 : 1))),
      securitySchemes: {
        JWTAuthorizer: {
          type: "apiKey",
          in: "header",
          name: "Authorization",
          description: "`Bearer <ACCESS_TOKEN>`, `<API_KEY>`, or `holdfast-token <clientId>:<secret>`",
        },
      },
    },
  };
}

function operationOf(route: Route, components: Map<string, unknown>): Json {
  const permissions = route.permissions.length === 0 ? {} : { "x-permission": route.permissions.join(" or ") };
  const body = requestBody(route, components);
  const answers = Object.entries(route.answers).map(([status, answer]) => [status, answerOf(answer, components)]);
  return {
    operationId: route.operationId,
    summary: route.summary,
    tags: [route.tag],
    ...(route.isDeprecated ? { deprecated: true } : {}),
    ...permissions,
    ...(route.isOpen ? { security: [] } : {}),
    parameters: [...parametersOf("path", route.params, components), ...parametersOf("query", route.query, components)],
    ...defined({ requestBody: body }),
    responses: Object.fromEntries(answers),
  };
}

function requestBody({ body, form }: Route, components: Map<string, unknown>): Json | undefined {
  const schema = body ?? form;
  if (schema === undefined) return undefined;
  const types = form === undefined ? ["application/json"] : ["application/x-www-form-urlencoded", "application/json"];
  const isRequired = !schema.safeParse(undefined).success;
  return { required: isRequired, content: contentOf(types, schemaOf(schema, "input", components)) };
}

function answerOf(answer: AnswerSpec, components: Map<string, unknown>): Json {
  const { schema, mediaTypes, headers = {} } = answer;
  const declared: Json = Object.fromEntries(
    Object.entries(headers).map(([name, { description, schema: value }]) => {
      const header: Json = { description, schema: schemaOf(value, "output", components) };
      return [name, header];
    }),
  );
  const response = {
    description: answer.description,
    ...(Object.keys(declared).length === 0 ? {} : { headers: declared }),
  };
  if (schema === undefined && mediaTypes === undefined) return response;
  const inner = schema === undefined ? { type: "string" } : schemaOf(schema, "output", components);
  return { ...response, content: contentOf(mediaTypes ?? ["application/json"], inner) };
}

const contentOf = (types: readonly string[], schema: Json): Json =>
  Object.fromEntries(types.map((type) => [type, { schema }]));

/** Lists are comma-separated. */
const LIST_STYLE = { style: "form", explode: false } as const;

function parametersOf(where: "path" | "query", schema: z.ZodObject | undefined, components: Map<string, unknown>) {
  return Object.entries<z.ZodType>(schema?.shape ?? {}).map(([name, field]) => {
    const described = schemaOf(field, "input", components);
    const required = where === "path" || !field.safeParse(undefined).success;
    const parameter = { name, in: where, required, schema: described };
    return described["type"] === "array" ? Object.assign(parameter, LIST_STYLE) : parameter;
  });
}

/** Returns the JSON Schema of a part; schemas with an `id` become components, referred to by name. */
function schemaOf(schema: z.ZodType, io: "input" | "output", components: Map<string, unknown>): Json {
  // Only nested schemas become references, so each is wrapped.
  const wrapped = z.toJSONSchema(z.object({ it: schema }), {
    io,
    unrepresentable: "any",
    override: ({ jsonSchema }) => {
      // Responses may gain fields; only requests are closed.
      if (io === "output" && jsonSchema.additionalProperties === false) delete jsonSchema.additionalProperties;
    },
  });
  const { $defs, properties } = relocate(wrapped) as { $defs?: Json; properties: { it: Json } };
  for (const [id, definition] of Object.entries($defs ?? {})) {
    const { id: _, ...rest } = definition as Json;
    components.set(id, rest);
  }
  return properties.it;
}

function relocate(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value).replaceAll('"#/$defs/', '"#/components/schemas/'));
}
