import { z } from "zod";
import type { AnswerSpec, Route, Variants } from "./route.ts";
import { exampleOf } from "./examples.ts";
import { defined } from "../../lib/defined.ts";

export const OPENAPI_VERSION = "3.1.1";

type Json = Record<string, unknown>;
type Content = Record<string, { readonly schema: Json } & Json>;

interface Parameter extends Json {
  readonly name: string;
  readonly in: "path" | "query";
  readonly required: boolean;
  readonly schema: Json;
}

interface Response extends Json {
  readonly content?: Content;
}

/** An operation object. */
interface Operation extends Json {
  readonly parameters: readonly Parameter[];
  readonly requestBody?: { readonly required: boolean; readonly content: Content };
  readonly responses: Readonly<Record<string, Response>>;
  readonly "x-variants"?: VariantForms;
}

interface VariantForms {
  readonly parameter: string;
  readonly values: Readonly<Record<string, { readonly body: Json; readonly answer: Json }>>;
}

/** Name of the example answer for values of a path parameter that are not listed. */
export const OTHER_VALUES = "default";

/** Describes all routes as an OpenAPI 3.1 document; named schemas become components. */
export function openApiDocument(routes: readonly Route[], version: string): Json {
  const components = new Map<string, unknown>();
  const paths = new Map<string, Record<string, Operation>>();
  for (const route of routes) {
    const item = paths.get(route.path) ?? {};
    paths.set(route.path, { ...item, [route.method.toLowerCase()]: operationOf(route, components) });
  }
  const schemas = Object.fromEntries([...components].sort(([a], [b]) => (a < b ? -1 : 1)));
  // Examples follow references, so that they need all components.
  for (const item of paths.values()) for (const operation of Object.values(item)) addExamples(operation, schemas);
  return {
    openapi: OPENAPI_VERSION,
    info: { title: "Network Management API", version: "1.0.0", description: `Holdfast ${version}` },
    servers: [{ url: "/" }],
    security: [{ JWTAuthorizer: [] }],
    paths: Object.fromEntries(paths),
    components: {
      schemas,
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

function operationOf(route: Route, components: Map<string, unknown>): Operation {
  const permissions = route.permissions.length === 0 ? {} : { "x-permission": route.permissions.join(" or ") };
  const body = requestBody(route, components);
  const answers = Object.entries(route.answers).map(
    ([status, answer]) => [status, answerOf(answer, components)] as const,
  );
  return {
    operationId: route.operationId,
    summary: route.summary,
    description: route.description,
    tags: [route.tag],
    ...(route.isDeprecated ? { deprecated: true } : {}),
    ...permissions,
    ...(route.isOpen ? { security: [] } : {}),
    parameters: [...parametersOf("path", route.params, components), ...parametersOf("query", route.query, components)],
    ...defined({ requestBody: body }),
    responses: Object.fromEntries(answers),
    ...(route.variants === undefined ? {} : { "x-variants": variantsOf(route.variants, components) }),
  };
}

/** Describes forms by a path parameter as `{parameter, values: {<value>: {body, answer}}}`. */
function variantsOf({ parameter, values }: Variants, components: Map<string, unknown>): VariantForms {
  const exampled = (schema: Json, example: object | undefined): Json =>
    example === undefined ? schema : { ...schema, examples: [example] };
  const described = Object.entries(values).map(([value, { body, answer, example }]) => {
    const forms = {
      body: exampled(schemaOf(body, "input", components), example?.body),
      answer: exampled(schemaOf(answer, "output", components), example?.answer),
    };
    return [value, forms] as const;
  });
  return { parameter, values: Object.fromEntries(described) };
}

function requestBody({ body, form }: Route, components: Map<string, unknown>): Operation["requestBody"] {
  const schema = body ?? form;
  if (schema === undefined) return undefined;
  const types = ["application/json", ...(form === undefined ? [] : ["application/x-www-form-urlencoded"])];
  const isRequired = !schema.safeParse(undefined).success;
  return { required: isRequired, content: contentOf(types, schemaOf(schema, "input", components)) };
}

function answerOf(answer: AnswerSpec, components: Map<string, unknown>): Response {
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

const contentOf = (types: readonly string[], schema: Json): Content =>
  Object.fromEntries(types.map((type) => [type, { schema }]));

/** Adds an example to required parameters, to those whose schema has one, to the body and to the answer of success. */
function addExamples(operation: Operation, components: Json): void {
  const { parameters, requestBody: body, responses, "x-variants": variants } = operation;
  for (const parameter of parameters) {
    if (parameter.required || "examples" in parameter.schema)
      Object.assign(parameter, { example: exampleOf(parameter.schema, components, parameter.name) });
  }
  const add = (content: Content | undefined, part: "body" | "answer"): void => {
    const named = Object.entries(variants?.values ?? {}).map(([name, form]): [string, unknown] => [
      name,
      { value: exampleOf(form[part], components) },
    ]);
    for (const [type, media] of Object.entries(content ?? {})) {
      if (isBinary(type)) continue;
      const example = exampleOf(media.schema, components);
      const others: [string, unknown][] = part === "answer" ? [[OTHER_VALUES, { value: example }]] : [];
      const examples = { examples: Object.fromEntries([...others, ...named]) };
      Object.assign(media, named.length === 0 ? { example } : examples);
    }
  };
  add(body?.content, "body");
  for (const [status, { content }] of Object.entries(responses)) if (status.startsWith("2")) add(content, "answer");
}

/** Reports whether bodies of a media type have no example: bytes, and lines of a stream. */
const isBinary = (type: string): boolean =>
  ["application/gzip", "application/octet-stream", "application/x-ndjson"].includes(type);

/** Lists are comma-separated. */
const LIST_STYLE = { style: "form", explode: false } as const;

function parametersOf(
  where: "path" | "query",
  schema: z.ZodObject | undefined,
  components: Map<string, unknown>,
): Parameter[] {
  return Object.entries<z.ZodType>(schema?.shape ?? {}).map(([name, field]) => {
    // The form of a preprocessed field omits its examples.
    const examples = field.meta()?.["examples"];
    const described: Json = { ...schemaOf(field, "input", components), ...defined({ examples }) };
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
