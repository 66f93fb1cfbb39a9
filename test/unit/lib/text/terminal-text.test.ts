import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { plainLine, plainText, plainValue, safeJson } from "../../../../src/lib/text/terminal-text.ts";
import { anyText } from "../../../support/any-text.ts";

const ESC = "\u001b";

describe("plainText", () => {
  it.each([
    [`${ESC}[31mred${ESC}[0m`, "red"],
    [`${ESC}]0;title\u0007text`, "text"],
    ["\u009b2Jcleared", "cleared"],
    ["bell\u0007 null\u0000 delete\u007f", "bell null delete"],
    ["64 bytes\rovertyped", "64 bytesovertyped"],
    ["a\r\nb\tc\n", "a\nb\tc\n"],
    ["user\u202eexe.txt\u2066", "userexe.txt"],
    ["pay\u200bpal\u200c \u2060soft\u00adware\ufeff\u{e0041}", "paypal software"],
    ["\u061c\ufff9note\u{1d173}", "note"],
    ["👩\u200d💻", "👩💻"],
    ["Größe 漢字 🙂", "Größe 漢字 🙂"],
  ])("cleans %j", (text, clean) => {
    expect(plainText(text)).toBe(clean);
  });

  it("leaves nothing that a terminal interprets, for any input", () => {
    const parts = fc.constantFrom(ESC, "[", "]", "31m", "\u0007", "\u009b", "\u202e", "\r", "\n", "x", "?25h", "\\");
    fc.assert(
      fc.property(fc.array(fc.oneof(parts, anyText())), (pieces) => {
        expect(plainText(pieces.join(""))).not.toMatch(/[^\P{Cc}\n\t]|\p{Cf}/u);
      }),
    );
  });

  it("joins lines to one", () => {
    expect(plainLine("one\n\ttwo\r\nthree")).toBe("one two three");
  });

  it("cleans every string of a value, and keys", () => {
    expect(plainValue({ [`k${ESC}[1m`]: [`${ESC}[2Jv`, 1, null, { deep: "a\nb" }] })).toEqual({
      k: ["v", 1, null, { deep: "a b" }],
    });
  });
});

describe("safeJson", () => {
  it("keeps the value and prints no control character", () => {
    fc.assert(
      fc.property(fc.jsonValue(), anyText(), (value, text) => {
        const line = safeJson({ value, text });
        expect(line).not.toMatch(/\p{Cc}|\p{Cf}/u);
        expect(JSON.parse(line)).toEqual(JSON.parse(JSON.stringify({ value, text })));
      }),
    );
  });

  it("escapes invisible characters, also beyond the first plane", () => {
    expect(safeJson("a\u200b\u{e0041}")).toBe('"a\\u200b\\udb40\\udc41"');
  });

  it("indents on request", () => {
    expect(safeJson({ a: 1 }, 2)).toBe('{\n  "a": 1\n}');
    expect(safeJson(undefined)).toBe("null");
  });
});
