import { expect, expectTypeOf, test } from "vitest";
import { defined } from "../../../src/lib/defined.ts";

test("omits undefined fields", () => {
  const note: string | undefined = undefined;
  const fields = defined({ name: "a", note, size: 0, flag: false, empty: null });
  expect(Object.keys(fields)).toEqual(["name", "size", "flag", "empty"]);
  expect({ note: "kept", ...fields }).toMatchObject({ note: "kept" });
});

test("a field that may be undefined is optional, and others stay required", () => {
  const fields = defined<{ id: number; note: string | undefined }>({ id: 1, note: undefined });
  expectTypeOf(fields).toExtend<{ id: number; note?: string }>();
});
