import { describe, expect, it } from "vitest";
import { z } from "zod";
import { describeIssues } from "../../../../src/protocol/channel/envelope.ts";

const Form = z.strictObject({
  name: z.string(),
  count: z.int().optional(),
  ratio: z.number().optional(),
  on: z.boolean().optional(),
  list: z.array(z.string()).optional(),
  state: z.enum(["ON", "OFF"]).optional(),
  one: z.literal("x").optional(),
  code: z.string().regex(/^a$/, "must begin with a").optional(),
  short: z.string().min(1).max(3).optional(),
  exact: z.string().length(2).optional(),
  few: z.array(z.int()).min(1).max(2).optional(),
  port: z.int().min(1).max(65_535).optional(),
  above: z.number().gt(0).optional(),
  id: z.uuid().optional(),
  slug: z
    .string()
    .regex(/^[a-z]+$/)
    .optional(),
  ten: z.int().multipleOf(10).optional(),
  named: z.record(z.string().regex(/^[a-z]$/, "must be one letter"), z.int()).optional(),
  custom: z
    .string()
    .refine((text) => text === "ok")
    .optional(),
  own: z.string("needs a text of its own").optional(),
});

describe("the mistake in a field", () => {
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
    [{ name: "a", short: "" }, "short: must not be empty"],
    [{ name: "a", short: "abcd" }, "short: must have at most 3 characters"],
    [{ name: "a", exact: "a" }, "exact: must have exactly 2 characters"],
    [{ name: "a", few: [] }, "few: needs at least one item"],
    [{ name: "a", few: [1, 2, 3] }, "few: must have at most 2 items"],
    [{ name: "a", port: 0 }, "port: must be at least 1"],
    [{ name: "a", port: 65_536 }, "port: must be at most 65535"],
    [{ name: "a", above: 0 }, "above: must be more than 0"],
    [{ name: "a", id: "x" }, "id: must be a UUID"],
    [{ name: "a", slug: "A" }, "slug: must match /^[a-z]+$/"],
    [{ name: "a", ten: 5 }, "ten: must be a multiple of 10"],
    [{ name: "a", named: { AA: 1 } }, "named.AA: is no name for a field: must be one letter"],
    [{ name: "a", custom: "no" }, "custom: is not allowed"],
    [{ name: "a", own: 1 }, "own: needs a text of its own"],
    [{ name: "a", extra: 1 }, "extra: is not a known field"],
    [[], "form: must be an object, not a list"],
    [undefined, "form: is missing"],
  ])("of %j is reported as %s", (value, line) => {
    expect(describeIssues(Form.safeParse(value).error ?? new z.ZodError([]), "form")).toEqual([
      line.startsWith("form: ") ? line : `form.${line}`,
    ]);
  });

  it("names each unknown field by its path, up to 100", () => {
    const lines = (value: unknown, root?: string) =>
      describeIssues(Form.safeParse(value).error ?? new z.ZodError([]), root);
    expect(lines({ name: "a", extra: 1, more: 2 }, "form")).toEqual([
      "form.extra: is not a known field",
      "form.more: is not a known field",
    ]);
    expect(lines({ name: "a", extra: 1 })).toEqual(["extra: is not a known field"]);
    const many = Object.fromEntries(Array.from({ length: 200 }, (_, at) => [`x${at}`, 1]));
    expect(lines({ name: "a", ...many })).toHaveLength(100);
  });

  it("of the value itself is led by a name of its own", () => {
    const { error = new z.ZodError([]) } = Form.safeParse([]);
    expect(describeIssues(error, "", "body")).toEqual(["body: must be an object, not a list"]);
    expect(describeIssues(error)).toEqual(["must be an object, not a list"]);
  });
});
