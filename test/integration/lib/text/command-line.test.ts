import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { holdfastCommand, shellWord } from "../../../../src/lib/text/command-line.ts";

test.each([
  [{}, "holdfast agent"],
  [{ state: "/s" }, "holdfast agent --state /s"],
  [{ run: "run" }, "holdfast agent --run run"],
  [{ state: "/a b", run: "/r" }, "holdfast agent --state '/a b' --run /r"],
])("%j", (given, command) => {
  expect(holdfastCommand("agent", given)).toBe(command);
});

test.each(["plain", "/with space", "it's", "$(id)", "", "a\nb", "*"])("a shell reads %j back unchanged", (text) => {
  expect(execFileSync("sh", ["-c", `printf %s ${shellWord(text)}`], { encoding: "utf8" })).toBe(text);
});
