import { describe, expect, it } from "vitest";
import { z } from "zod";
import { describeIssues } from "../../../src/protocol/envelope.ts";

const Form = z.strictObject({
  name: z.string(),
  count: z.int().optional(),
  ratio: z.number().optional(),
  on: z.boolean().optional(),
  list: z.array(z.string()).optional(),
  state: z.enum(["ON", "OFF"]).optional(),
  one: z.literal("x").optional(),
  code: z.string().regex(/^a$/, "must begin with a").optional(),
  own: z.string("needs a text of its own").optional(),
});

describe("what is wrong with a field", () => {
  it.each([
    [{}, "name: is missing"],
    [{ name: 7 }, "name: must be text, not a number"],
    [{ name: null }, "name: must be text, not null"],
    [{ name: ["a"] }, "name: must be text, not a list"],
    [{ name: "a", count: "1" }, "count: must be a number, not text"],
    [{ name: "a", count: 1.5 }, "count: must be a whole number"],
    [{ name: "a", ratio: {} }, "ratio: must be a number, not an object"],
    [{ name: "a", on: 1 }, "on: must be true or false, not a number"],
    [{ name: "a", list: "b" }, "list: must be a list, not text"],
    [{ name: "a", list: [true] }, "list.0: must be text, not true or false"],
    [{ name: "a", state: "off" }, "state: must be one of ON, OFF"],
    [{ name: "a", one: "y" }, "one: must be x"],
    [{ name: "a", code: "b" }, "code: must begin with a"],
    [{ name: "a", own: 1 }, "own: needs a text of its own"],
    [{ name: "a", extra: 1, more: 2 }, "form: has unknown fields: extra, more"],
    [[], "form: must be an object, not a list"],
    [undefined, "form: is missing"],
  ])("of %j is told as %s", (value, line) => {
    expect(describeIssues(Form.safeParse(value).error ?? new z.ZodError([]), "form")).toEqual([
      line.startsWith("form: ") ? line : `form.${line}`,
    ]);
  });
});
