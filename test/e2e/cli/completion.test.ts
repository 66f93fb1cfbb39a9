import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { allVerbs } from "../../../src/cli/frame/find-verb.ts";
import { verbs as list } from "../../../src/cli/verbs.ts";
import { triggerEvents } from "../../../src/protocol/values/trigger-events.ts";
import { someDirectories } from "../../support/local-agent.ts";
import { holdfast } from "../../support/run-holdfast.ts";

const verbs = await allVerbs(list);
const verbNames = verbs.map(({ name }) => name);

describe("the bash completion", () => {
  it("answers the completion requests of a real bash", async () => {
    await using dirs = await someDirectories();
    const { code, stdout } = await holdfast(["completion", "bash"]);
    expect(code).toBe(0);
    const script = join(dirs.root, "holdfast.bash");
    writeFileSync(script, stdout);
    writeFileSync(join(dirs.root, "my license.jwt"), "");
    const bash = (command: string): string =>
      execFileSync("bash", ["--norc", "-euc", `source ${script}; ${command}`], { encoding: "utf8", cwd: dirs.root });
    const complete = (...words: string[]): string[] =>
      bash(
        `COMP_WORDS=(${words.map((word) => `'${word}'`).join(" ")}); COMP_CWORD=${words.length - 1}; _holdfast; printf '%s\\n' "\${COMPREPLY[@]}"`,
      )
        .split("\n")
        .filter((line) => line !== "");

    expect(bash("complete -p holdfast").trim()).toBe("complete -F _holdfast holdfast");
    expect(complete("holdfast", "")).toEqual(verbNames);
    expect(complete("holdfast", "res")).toEqual(["reset", "reset-floor", "restart"]);
    expect(complete("holdfast", "trigger", "")).toEqual([...triggerEvents]);
    expect(complete("holdfast", "trigger", "--json", "--timeout", "5", "tg-p")).toEqual(["tg-ping"]);
    expect(complete("holdfast", "trigger", "tg-ping", "")).toEqual([]);
    expect(complete("holdfast", "completion", "")).toEqual(["bash", "zsh", "fish"]);
    expect(complete("holdfast", "help", "")).toEqual(verbNames);
    expect(complete("holdfast", "reset-floor", "")).toEqual(["keys", "node", "cluster", "domain"]);
    expect(complete("holdfast", "logs", "--f")).toEqual(["--follow"]);
    expect(complete("holdfast", "logs", "--lines", "")).toEqual([]);
    expect(complete("holdfast", "register", "my")).toEqual(["my license.jwt"]);
    expect(complete("holdfast", "nonsense", "")).toEqual([]);
    for (const { name, options } of verbs) {
      const offered = complete("holdfast", name, "--");
      expect(offered).toEqual(Object.keys(options).map((option) => `--${option}`));
    }
  });
});

describe.each(["zsh", "fish"])("the %s completion", (shell) => {
  it("names every verb, option and event", async () => {
    const { code, stdout } = await holdfast(["completion", shell]);
    expect(code).toBe(0);
    for (const name of [...verbNames, ...triggerEvents]) expect(stdout).toContain(name);
    for (const option of verbs.flatMap(({ options }) => Object.keys(options))) {
      expect(stdout).toContain(shell === "fish" ? `-l ${option} ` : `--${option}`);
    }
    // Every quote is closed.
    for (const line of stdout.split("\n")) {
      const quotes = line.replaceAll("'\\''", "").replaceAll("\\'", "").match(/'/g)?.length ?? 0;
      expect(quotes % 2, line).toBe(0);
    }
  });
});
