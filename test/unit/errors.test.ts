import { expect, test } from "vitest";
import { AgentError, errnoOf, HostError, InputError, InternalError, SessionError, toError } from "../../src/errors.ts";

test("an error carries its class, code, details and cause", () => {
  const cause = new Error("below");
  for (const Kind of [InputError, HostError, SessionError, InternalError]) {
    const error = new Kind("some-code", "words", { cause, details: { field: "a" } });
    expect(error).toBeInstanceOf(AgentError);
    expect(error).toMatchObject({
      name: Kind.name,
      code: "some-code",
      message: "words",
      details: { field: "a" },
      cause,
    });
  }
});

test.each([["text"], [undefined], [null], [42], [{ a: 1 }], [Symbol("s")]])(
  "a thrown %s becomes an error",
  (thrown) => {
    expect(toError(thrown)).toBeInstanceOf(InternalError);
  },
);

test("a thrown error stays unchanged", () => {
  const error = new TypeError("x");
  expect(toError(error)).toBe(error);
});

test("only errors have a system error code", () => {
  expect(errnoOf(Object.assign(new Error("x"), { code: "ENOENT" }))).toBe("ENOENT");
  expect(errnoOf(Object.assign(new Error("x"), { code: 5 }))).toBeUndefined();
  expect(errnoOf({ code: "ENOENT" })).toBeUndefined();
  expect(errnoOf(undefined)).toBeUndefined();
});
