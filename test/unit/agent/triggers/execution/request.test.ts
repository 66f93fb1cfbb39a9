import { expect, test } from "vitest";
import { z } from "zod";
import { digestOf, parseRequest } from "../../../../../src/agent/triggers/execution/request.ts";

const schema = z.object({ host: z.string(), port: z.int() });

test("none, null and {} are the same body", () => {
  const empty = z.strictObject({});
  for (const body of [undefined, null, {}]) {
    expect(parseRequest("e", empty, body)).toEqual({});
    expect(digestOf(body)).toBe(digestOf({}));
  }
  expect(digestOf({ a: 1 })).not.toBe(digestOf({}));
});

test("drops name unless the event defines it, even if nothing else is allowed", () => {
  expect(parseRequest("e", z.strictObject({ host: z.string() }), { name: "e", host: "h" })).toEqual({ host: "h" });
  expect(parseRequest("e", z.object({ name: z.string() }), { name: "x" })).toEqual({ name: "x" });
});

test("ignores unknown fields, and names all invalid ones", () => {
  expect(parseRequest("e", schema, { host: "h", port: 1, more: true })).toEqual({ host: "h", port: 1 });
  expect(() => parseRequest("e", schema, { host: 1, port: "x" })).toThrow(
    expect.objectContaining({
      code: "invalid-body",
      details: { field: "host", issues: [expect.stringMatching(/^host: /), expect.stringMatching(/^port: /)] },
    }),
  );
});

test("names an unknown field if nothing else is allowed, also in a nested one", () => {
  const strict = z.strictObject({ config: z.strictObject({}).optional() });
  const details = (field: string): unknown =>
    expect.objectContaining({
      code: "invalid-body",
      details: { field, issues: [`${field}: is not a known field`] },
    });
  expect(() => parseRequest("e", strict, { x: 1 })).toThrow(details("x"));
  expect(() => parseRequest("e", strict, { config: { x: 1 } })).toThrow(details("config.x"));
});

test.each([
  [[], "a list"],
  ["text", "text"],
  [1, "a number"],
  [true, "true or false"],
])("%j is not a body", (body, kind) => {
  const field = { field: "body", issues: [`must be an object, not ${kind}`] };
  expect(() => parseRequest("e", schema, body)).toThrow(
    expect.objectContaining({ code: "invalid-body", details: field }),
  );
});

test("a hostile body does not enlarge the answer", () => {
  const keys = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`${"k".repeat(4096)}${i}`, 1]));
  try {
    parseRequest("e", z.strictObject({}), keys);
    expect.unreachable();
  } catch (error) {
    expect(JSON.stringify(error).length).toBeLessThan(10_000);
  }
});
