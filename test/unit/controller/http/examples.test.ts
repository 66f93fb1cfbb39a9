import { describe, expect, it } from "vitest";
import { z } from "zod";
import { isObject } from "../../../../src/protocol/sections/common/forms.ts";
import {
  ExampleStage,
  UNPERFORMED,
  type Example,
  type Operation,
} from "../../../support/control-plane/example-stage.ts";

// The table is the same whatever the stage, and a test per operation needs it before the first hook runs.
const stage = await ExampleStage.open();
const operations = stage.bench.routes.map((route) => {
  const operation = stage.operations.get(route.operationId);
  if (operation === undefined) throw new Error(`${route.operationId} is not in the document`);
  return [route.operationId, route, operation] as const;
});

type Media = NonNullable<Operation["responses"][string]["content"]>[string];

/** Returns the examples of a media type by name; the only one has none. */
function valuesOf({ example, examples }: Media): readonly (readonly [string, unknown])[] {
  if (examples === undefined) return [["", example]];
  return Object.entries(examples).map(([name, { value }]) => [name, value] as const);
}

describe("the examples of every operation", () => {
  it.each(operations)("%s: are what it takes and answers", (_, route, operation) => {
    const problems: string[] = [];
    const check = (schema: z.ZodType, example: unknown, what: string): void => {
      const parsed = schema.safeParse(example);
      if (!parsed.success) problems.push(`${what} ${JSON.stringify(example)}: ${z.prettifyError(parsed.error)}`);
    };
    const given = (where: string) =>
      Object.fromEntries(
        operation.parameters
          .filter((one) => one.in === where && one.example !== undefined)
          .map(({ name, example }) => [name, example]),
      );
    check(route.params ?? z.object({}), given("path"), "path");
    check(route.query ?? z.object({}), given("query"), "query");
    const sent = operation.requestBody?.content["application/json"];
    const body = route.body ?? route.form;
    expect(sent === undefined).toBe(body === undefined);
    for (const [name, value] of sent === undefined ? [] : valuesOf(sent))
      check(route.variants?.values[name]?.body ?? body ?? z.never(), value, `body ${name}`);
    for (const [status, { content }] of Object.entries(operation.responses)) {
      const schema = route.answers[Number(status)]?.schema;
      const media = content?.["application/json"];
      if (!status.startsWith("2") || schema === undefined || media === undefined) continue;
      for (const [name, value] of valuesOf(media))
        check(route.variants?.values[name]?.answer ?? schema, value, `answer ${name}`);
    }
    expect(problems).toEqual([]);
  });

  it("are described in a sentence with the permission", () => {
    for (const [, , { description }] of operations) expect(description).toMatch(/^[A-Z].+\. Requires .+\.$/);
  });
});

describe("the examples, performed", () => {
  it.each(stage.examples().map((example) => [example.operationId, example] as const))("%s", async (_, example) => {
    const { status, json } = await stage.perform(example);
    const expected = UNPERFORMED.get(example.operationId) ?? 200;
    expect([status, status === expected ? "" : JSON.stringify(json)]).toEqual([expected, ""]);
    if (status === 200) expect(differences(example, json)).toEqual([]);
  });
});

/** Members whose own members are names that a user or a node chose. */
const OPEN = new Set([
  "tags",
  "tgTags",
  "keys",
  "config",
  "device",
  "location",
  "heartbeat",
  "shadow",
  "details",
  "meta",
]);

/** Returns the members of an answer that the example has not, or of another type. */
function differences({ answer, operationId }: Example, real: unknown): readonly string[] {
  if (["getOpenApi", "triggerNode"].includes(operationId)) return [];
  const found: string[] = [];
  const compare = (path: string, shown: unknown, got: unknown): void => {
    if (got === null || shown === null) return;
    if (typeOf(shown) !== typeOf(got)) found.push(`${path}: ${typeOf(got)}, in the example ${typeOf(shown)}`);
    else if (Array.isArray(shown) && Array.isArray(got)) {
      for (const [at, one] of shown.length === 0 ? [] : got.entries())
        compare(`${path}[${at}]`, shown[at] ?? shown[0], one);
    } else if (isObject(shown) && isObject(got)) {
      for (const [name, value] of Object.entries(got)) {
        if (!Object.hasOwn(shown, name)) found.push(`${path}.${name}: is not in the example`);
        else if (!OPEN.has(name)) compare(`${path}.${name}`, shown[name], value);
      }
    }
  };
  compare("", answer, real);
  return found;
}

const typeOf = (value: unknown): string => (Array.isArray(value) ? "array" : typeof value);
