import { expect, test } from "vitest";
import { addedLinesOf } from "../../../scripts/wording/added.ts";
import { riddleOf, wordsOf } from "../../../scripts/wording/glossary.ts";
import { proseOf } from "../../../scripts/wording/texts.ts";

test.each([
  ["puts the section into force", "puts the section into force"],
  ["the change is taken back", "taken back"],
  ["it is dialled more and more seldom", "more and more seldom"],
  ["items that cannot be had", "cannot be had"],
  ["the gateway is away", "is away"],
  ["what the node is told", "told"],
])("%s breaks the glossary", (text, found) => {
  expect(wordsOf(text).map((finding) => finding.found)).toContain(found);
});

test("words that are part of another word, or code, are no findings", () => {
  expect(wordsOf("The gateway's backup holds; `takeBack()` and [the page](told/said.md) apply.")).toEqual([]);
});

test.each(["What it costs to leave.", "Who may open streams.", "Of a data connection: its port.", "How it stands."])(
  "a doc comment does not start with a riddle: %s",
  (comment) => {
    expect(riddleOf(comment)).toBeDefined();
  },
);

test.each(["Limits handshakes.", "Reports whether it is open.", "How many flows are open."])(
  "a doc comment may start with: %s",
  (comment) => {
    expect(riddleOf(comment)).toBeUndefined();
  },
);

test("reads comments and strings of code with their lines, and not the code", () => {
  const code = [
    "/**",
    " * Who goes there.",
    " */",
    'const told = /"told it/; // said it',
    "const text = `one or ${told}",
    "two lines`;",
    "takeBack(told);",
  ].join("\n");
  expect(proseOf("a.ts", code)).toEqual([
    { line: 2, text: "Who goes there.", startsDocComment: true },
    { line: 4, text: "said it", startsDocComment: false },
    { line: 5, text: "one or ${told}", startsDocComment: false },
    { line: 6, text: "two lines", startsDocComment: false },
  ]);
});

test("reads only the comments of code blocks in documents", () => {
  const page = ["# Title", "```sh", "say told  # it is told", "```", "Said."].join("\n");
  expect(proseOf("a.md", page).map(({ line, text }) => [line, text])).toEqual([
    [1, "# Title"],
    [3, "it is told"],
    [5, "Said."],
  ]);
});

test("finds the added lines of a diff by file", () => {
  const diff = [
    "diff --git a.ts a.ts",
    "--- a.ts",
    "+++ a.ts",
    "@@ -3,2 +3 @@ function a() {",
    "-old",
    "-old",
    "+new",
    "@@ -9,0 +10,2 @@",
    "+one",
    "+two",
    "--- gone.ts",
    "+++ /dev/null",
    "@@ -1 +0,0 @@",
    "-old",
  ].join("\n");
  expect([...addedLinesOf(diff)].map(([path, lines]) => [path, [...lines]])).toEqual([["a.ts", [3, 10, 11]]]);
});
