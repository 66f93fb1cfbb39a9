import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { shellWord } from "../../../../src/lib/text/command-line.ts";
import { shellWords } from "../../../../src/lib/text/shell-words.ts";
import { runs } from "../../../support/sample.ts";
import { anyText } from "../../../support/any-text.ts";

describe("shellWords", () => {
  it.each<[string, readonly string[], boolean]>([
    ["", [], false],
    ["  \n\t ", [], false],
    ["serve --port 8080", ["serve", "--port", "8080"], false],
    ["  serve\t--port   8080 \n", ["serve", "--port", "8080"], false],
    [`say 'a b' "c d"e''`, ["say", "a b", "c de"], false],
    [`"" ''`, ["", ""], false],
    [String.raw`a\ b \"c\" 'd\e' "f\"g\h\$"`, ["a b", '"c"', String.raw`d\e`, String.raw`f"g\h$`], false],
    ["a \\\n b", ["a", "b"], false],
    ["curl localhost/h?x=* || exit 1", ["curl", "localhost/h?x=*", "||", "exit", "1"], true],
    ["echo 'a|b' \"c>d;e&f\"", ["echo", "a|b", "c>d;e&f"], false],
    ['echo "$HOME"', ["echo", "$HOME"], true],
    ["echo '$HOME' \\$HOME", ["echo", "$HOME", "$HOME"], false],
    ["echo `id`", ["echo", "`id`"], true],
    ["a\nb", ["a", "b"], true],
    ["(a)", ["(a)"], true],
    ["größe 漢字", ["größe", "漢字"], false],
  ])("splits %j", (line, words, needsShell) => {
    expect(shellWords(line)).toEqual({ words, needsShell });
  });

  it.each(["'", '"', "a 'b", 'a "b', "a\\", '"a\\"', `'a"`])("reports that %j is incomplete", (line) => {
    expect(shellWords(line)).toBeUndefined();
  });

  it("returns the words that were quoted for a shell", () => {
    fc.assert(
      fc.property(fc.array(anyText()), (words) => {
        expect(shellWords(words.map(shellWord).join(" "))).toEqual({ words, needsShell: false });
      }),
      { numRuns: runs(100) },
    );
  });

  it("never throws", () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom("'", '"', "\\", " ", "\n", "a", "$") }), (line) => {
        for (const word of shellWords(line)?.words ?? []) expect(word.length).toBeLessThanOrEqual(line.length);
      }),
    );
  });
});
