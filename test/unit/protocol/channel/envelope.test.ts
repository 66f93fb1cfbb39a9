import { describe, expect, test } from "vitest";
import { z } from "zod";
import { InputError } from "../../../../src/errors.ts";
import {
  describeIssues,
  HANDSHAKE_LIMITS,
  parseMessage,
  refuseEnvelope,
  SESSION_LIMITS,
} from "../../../../src/protocol/channel/envelope.ts";
import { nodeMethods } from "../../../../src/protocol/channel/methods.ts";

const parse = (value: unknown) => parseMessage(JSON.stringify(value), SESSION_LIMITS);
const codeOf = (frame: string | Uint8Array, limits = SESSION_LIMITS): string => {
  try {
    parseMessage(frame, limits);
    return "none";
  } catch (error) {
    return error instanceof InputError ? error.code : `not an InputError: ${String(error)}`;
  }
};

describe("a frame", () => {
  test("is classified", () => {
    expect(parse({ jsonrpc: "2.0", id: 1, method: "document.get", params: { a: 1 } })).toMatchObject({
      kind: "request",
      id: 1,
      params: { a: 1 },
    });
    expect(parse({ jsonrpc: "2.0", method: "heartbeat", params: {} })).toMatchObject({
      kind: "notification",
      method: "heartbeat",
    });
    expect(parse({ jsonrpc: "2.0", id: 3, result: null })).toMatchObject({ kind: "success", id: 3, result: null });
    expect(parse({ jsonrpc: "2.0", id: null, error: { code: -1, message: "x" } })).toMatchObject({ kind: "failure" });
    expect(parse({ jsonrpc: "2.0", id: 4, error: { code: -1, message: "x" }, result: 1 })).toMatchObject({
      kind: "failure",
    });
  });

  test.each([
    ["a batch", "[]", "invalid-message"],
    ["null", "null", "invalid-message"],
    ["text", '"x"', "invalid-message"],
    ["nothing", "", "invalid-json"],
    ["the wrong version", '{"jsonrpc":"1.0","id":1,"result":1}', "invalid-message"],
    ["no version", '{"id":1,"result":1}', "invalid-message"],
    ["a request with id 0", '{"jsonrpc":"2.0","id":0,"method":"heartbeat"}', "invalid-message"],
    ["a request with a null id", '{"jsonrpc":"2.0","id":null,"method":"heartbeat"}', "invalid-message"],
    ["a request with a text id", '{"jsonrpc":"2.0","id":"1","method":"heartbeat"}', "invalid-message"],
    ["a method that is no text", '{"jsonrpc":"2.0","id":1,"method":5}', "invalid-message"],
    ["a method of 65 characters", `{"jsonrpc":"2.0","method":"${"a".repeat(65)}"}`, "invalid-message"],
    ["an answer without id", '{"jsonrpc":"2.0","result":1}', "invalid-message"],
    ["an error without a code", '{"jsonrpc":"2.0","id":1,"error":{"message":"x"}}', "invalid-message"],
    ["a hidden prototype", '{"jsonrpc":"2.0","id":1,"result":{"__pro\\u0074o__":1}}', "forbidden-key"],
  ])("%s is refused", (_what, frame, code) => {
    expect(codeOf(frame)).toBe(code);
  });

  test("is refused with the name of the invalid field", () => {
    expect(() => parse({ jsonrpc: "2.0", id: 1.5, method: "a.b" })).toThrow(/^id: /);
    expect(() => parse({ jsonrpc: "2.0", id: 1, error: { code: "x", message: "m" } })).toThrow(/^error\.code: /);
  });

  test.each(["no-such", "v2.x", "a.b.c", "toString", "a..b", "", "é"])(
    "may call the method %j, known or not",
    (method) => {
      expect(parse({ jsonrpc: "2.0", id: 1, method })).toMatchObject({ kind: "request", method });
    },
  );

  test.each([
    [{ jsonrpc: "1.0", id: 7, method: "a" }, 7],
    [{ jsonrpc: "2.0", id: 7, method: 5 }, 7],
    [{ jsonrpc: "2.0", id: 7, method: "a".repeat(65) }, 7],
    [{ jsonrpc: "2.0", id: 7, method: "a", params: { constructor: 1 } }, 7],
    [{ jsonrpc: "2.0", id: 7, result: { constructor: 1 } }, undefined],
    [{ jsonrpc: "2.0", id: "7", method: "a" }, undefined],
    [{ jsonrpc: "2.0", method: 5 }, undefined],
    [{ jsonrpc: "2.0", id: 7, error: {} }, undefined],
    [[], undefined],
  ])("%j is answered only if it is a request with a usable id", (frame, id) => {
    const thrown: unknown = (() => {
      try {
        return parse(frame);
      } catch (error) {
        return error;
      }
    })();
    const answer = refuseEnvelope(thrown);
    if (id === undefined) expect(answer).toBeUndefined();
    else expect(parse(JSON.parse(answer ?? ""))).toMatchObject({ kind: "failure", id, error: { code: -32600 } });
  });

  test("may omit its parameters", () => {
    expect(parse({ jsonrpc: "2.0", id: 1, method: "trigger.run" })).toMatchObject({ kind: "request", id: 1 });
    expect(parse({ jsonrpc: "2.0", method: "heartbeat" })).toMatchObject({ kind: "notification" });
  });

  test("is limited by its phase, counted in bytes", () => {
    const frame = JSON.stringify({ jsonrpc: "2.0", id: 1, result: "é".repeat(40 * 1024) });
    expect(codeOf(frame, HANDSHAKE_LIMITS)).toBe("too-large");
    expect(codeOf(frame, SESSION_LIMITS)).toBe("none");
  });

  test("with a method name of a megabyte is refused at little cost", () => {
    const method = `${"a".repeat(1_000_000)}!`;
    expect(codeOf(JSON.stringify({ jsonrpc: "2.0", method }))).toBe("invalid-message");
  });
});

describe("a description of issues", () => {
  test("starts with the path, below its root", () => {
    const { error } = z.object({ a: z.array(z.int()) }).safeParse({ a: [1, "x"] });
    expect(describeIssues(error ?? new z.ZodError([]), "doc")).toEqual([expect.stringMatching(/^doc\.a\.1: /)]);
  });

  test("names the field inside a union by the nearest of its forms", () => {
    const { error } = nodeMethods["trigger.result"].params.safeParse({ id: "x", body: 1 });
    expect(describeIssues(error ?? new z.ZodError([]))).toEqual([expect.stringMatching(/^id: /)]);
  });
});
