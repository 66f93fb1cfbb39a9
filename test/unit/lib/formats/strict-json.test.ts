import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { InputError } from "../../../../src/errors.ts";
import { parseStrictJson } from "../../../../src/lib/formats/strict-json.ts";
import { runs } from "../../../support/sample.ts";

const limits = { maxBytes: 100_000, maxDepth: 32 };

function codeOf(input: string | Uint8Array, with_ = limits): string {
  try {
    parseStrictJson(input, with_);
    return "none";
  } catch (error) {
    if (error instanceof InputError) return error.code;
    throw error;
  }
}

describe("valid JSON", () => {
  test("is parsed as by JSON.parse", () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 6 }), fc.constantFrom(0, 1, 3), (text, indent) => {
        fc.pre(!/__proto__|constructor|prototype/.test(text));
        const spaced = JSON.stringify(JSON.parse(text), undefined, indent);
        expect(parseStrictJson(spaced, limits)).toEqual(JSON.parse(spaced));
        expect(parseStrictJson(Buffer.from(spaced), limits)).toEqual(JSON.parse(spaced));
      }),
      { numRuns: runs(400) },
    );
  });

  test.each([
    ['"]]]]{{{{[[[["', 0],
    [String.raw`["\"[[[[", "\\", "[\\\"["]`, 1],
    [String.raw`{"\\\\": "[", "[\"[": {"]": "\\\\\""}}`, 2],
    ['["\\u005b\\u005b"]', 1],
  ])("has no brackets counted inside a string: %s", (text, depth) => {
    expect(parseStrictJson(text, { ...limits, maxDepth: depth })).toEqual(JSON.parse(text));
    if (depth > 0) expect(codeOf(text, { ...limits, maxDepth: depth - 1 })).toBe("too-deep");
  });
});

describe("the limits", () => {
  test.each([1, 2, 32])("accept %i levels and not one more, of arrays and of objects", (maxDepth) => {
    for (const [open, close] of [
      ["[", "]"],
      ['{"a":', "}"],
    ] as const) {
      const nested = (depth: number) => `${open.repeat(depth)}1${close.repeat(depth)}`;
      expect(codeOf(nested(maxDepth), { ...limits, maxDepth })).toBe("none");
      expect(codeOf(nested(maxDepth + 1), { ...limits, maxDepth })).toBe("too-deep");
    }
    const wide = `[${Array.from({ length: 100 }, () => "[]").join(",")}]`;
    expect(codeOf(wide, { ...limits, maxDepth: 2 })).toBe("none");
  });

  test("count bytes and not characters", () => {
    expect(codeOf('"éé"', { ...limits, maxBytes: 6 })).toBe("none");
    expect(codeOf('"éé"', { ...limits, maxBytes: 5 })).toBe("too-large");
    expect(codeOf(Buffer.from('"éé"'), { ...limits, maxBytes: 6 })).toBe("none");
    expect(codeOf(Buffer.from('"éé"'), { ...limits, maxBytes: 5 })).toBe("too-large");
  });

  test("apply before anything is parsed", () => {
    expect(codeOf("[".repeat(90_000))).toBe("too-deep");
    expect(codeOf("x".repeat(100_001))).toBe("too-large");
    expect(codeOf(`"${"\\".repeat(99_000)}`)).toBe("invalid-json");
    expect(codeOf(`"${String.raw`\"`.repeat(49_000)}`)).toBe("invalid-json");
  });
});

describe("keys that reach a prototype", () => {
  const spellings = fc
    .tuple(
      fc.constantFrom("__proto__", "constructor", "prototype"),
      fc.array(fc.boolean(), { minLength: 12, maxLength: 12 }),
    )
    .map(([key, escaped]) =>
      Array.from(key)
        .map((c, i) => (escaped[i] === true ? `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}` : c))
        .join(""),
    );

  test("are refused in any spelling and place", () => {
    const places = fc.constantFrom('{"%":1}', '[{"a":[{"%":null}]}]', '{"a":{"b":{"%":{}}}}', '{"x":1, "%" : 2}');
    fc.assert(
      fc.property(spellings, places, (key, place) => {
        expect(codeOf(place.replace("%", key))).toBe("forbidden-key");
      }),
    );
  });

  test("are accepted as values and as parts of other keys", () => {
    expect(codeOf('{"a":"__proto__","constructors":["constructor"],"\\u0061":"\\u005f"}')).toBe("none");
  });

  test("are reported with their path", () => {
    expect(() => parseStrictJson('{"a":[0,{"prototype":1}]}', limits)).toThrow(
      expect.objectContaining({ code: "forbidden-key", details: { field: "a.1.prototype" } }) as Error,
    );
  });
});

describe("invalid JSON", () => {
  test.each([
    "",
    " ",
    "{",
    "]",
    "]]][[[",
    "{]}",
    "[1,]",
    "{'a':1}",
    "NaN",
    "01",
    '"\n"',
    '"',
    '"\\',
    '{"a":1}x',
    "\u{FEFF}{}",
  ])("is refused: %j", (text) => {
    expect(codeOf(text)).toBe("invalid-json");
    expect(codeOf(Buffer.from(text))).toBe("invalid-json");
  });

  test("is never accepted after a mutation of valid JSON", () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 4 }), fc.nat(), fc.integer({ min: 0, max: 255 }), (text, at, byte) => {
        const bytes = Buffer.from(text);
        bytes[at % bytes.length] = byte;
        let expected: unknown;
        try {
          expected = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
        } catch {
          expect(["invalid-json", "invalid-utf8", "too-deep"]).toContain(codeOf(bytes));
          return;
        }
        if (codeOf(bytes) !== "forbidden-key") expect(parseStrictJson(bytes, limits)).toEqual(expected);
      }),
      { numRuns: runs(400) },
    );
  });

  test.each([
    ["a lone continuation byte", [0x22, 0x80, 0x22]],
    ["an overlong slash", [0x22, 0xc0, 0xaf, 0x22]],
    ["a surrogate in UTF-8", [0x22, 0xed, 0xa0, 0x80, 0x22]],
    ["a cut character", [0x22, 0xe2, 0x82, 0x22]],
    ["UTF-16", [0xff, 0xfe, 0x7b, 0x00]],
  ])("with %s is refused as UTF-8", (_what, bytes) => {
    expect(codeOf(Uint8Array.from(bytes))).toBe("invalid-utf8");
  });
});

describe("a name that is given twice", () => {
  const unique = { ...limits, hasUniqueNames: true } as const;

  test.each([
    ['{"a":1,"a":1}', "a"],
    ['{"a":{"b":[{"c":1},{"c":1,"d":"}","c":2}]}}', "a.b.1.c"],
    ['{"a\\"b":1,"a\\u0022b":2}', 'a"b'],
    ['[[],{},{"x":[],"y":{},"x":0}]', "2.x"],
    ['{"":1,"":2}', ""],
  ])("is refused in %s", (text, field) => {
    expect(() => parseStrictJson(text, unique)).toThrow(
      expect.objectContaining({ code: "repeated-name", details: { field } }) as Error,
    );
    expect(codeOf(text)).toBe("none");
  });

  test("is only one of the same object", () => {
    for (const text of ['{"a":{"a":["a","a",{"a":"a"}]},"b":"a"}', '"a"', "[1,1]", '{"a":"\\\\","b":1}', "null"]) {
      expect(parseStrictJson(text, unique)).toEqual(JSON.parse(text));
    }
    fc.assert(
      fc.property(fc.json({ maxDepth: 6 }), (text) => {
        fc.pre(!/__proto__|constructor|prototype/.test(text));
        const canonical = JSON.stringify(JSON.parse(text));
        expect(parseStrictJson(canonical, unique)).toEqual(JSON.parse(canonical));
      }),
    );
  });
});
