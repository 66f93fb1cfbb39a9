import { describe, expect, it } from "vitest";
import { overview, verbHelp } from "../../../src/cli/text/verb-help.ts";
import { versionVerb } from "../../../src/cli/verbs/version.ts";
import { allVerbs, isRunnable } from "../../../src/cli/frame/find-verb.ts";
import { verbs as list } from "../../../src/cli/verbs.ts";
import { LocalError } from "../../../src/protocol/local/answers.ts";
import { runVerb } from "../../support/run-verb.ts";
import { holdfast } from "../../support/run-holdfast.ts";

const verbs = await allVerbs(list);

describe("help", () => {
  it.each(verbs.map((verb) => [verb.name, verb] as const))("of %s is complete, within 80 columns", (name, verb) => {
    const text = verbHelp(verb, 80);
    for (const line of text.split("\n").slice(0, -2)) expect(line.length).toBeLessThanOrEqual(80);
    for (const option of ["state", "run", "help", ...Object.keys(verb.options)]) expect(text).toContain(`--${option}`);
    expect(text).toContain(`Usage: holdfast ${name}`);
    expect(text).toContain("Exit codes:\n  0");
    expect(text).toContain(`Example:\n  ${verb.example}`);
  });

  it("is printed for every form of the request", async () => {
    const bare = await holdfast([]);
    expect(bare).toEqual({ code: 0, stdout: overview(verbs, 80), stderr: "" });
    for (const args of [["help"], ["--help"], ["-h"]]) expect(await runVerb(args)).toEqual(bare);
    const ofLogs = await runVerb(["help", "logs"]);
    expect(ofLogs.code).toBe(0);
    expect(await runVerb(["logs", "--help", "stray"])).toEqual(ofLogs);
    expect((await holdfast(["agent", "-h"])).stdout).toContain("Usage: holdfast agent");
  });

  it.each(verbs.filter(isRunnable).map((verb) => [verb.name, verb] as const))(
    "has the JSON Schema of %s, if it prints JSON",
    async (name, verb) => {
      const { output } = verb;
      const { code, stdout } = await runVerb(["help", "--json-schema", name]);
      expect(Object.hasOwn(verb.options, "json")).toBe(output !== undefined);
      expect(code).toBe(output === undefined ? 2 : 0);
      if (output !== undefined) expect(JSON.parse(stdout)).toMatchObject({ title: `holdfast ${name} --json` });
    },
  );
});

describe("holdfast version", () => {
  it("prints a line, or the documented JSON", async () => {
    const { code, stdout } = await holdfast(["version"]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^holdfast \d+\.\d+\.\d+ \(.+\) on Node v26\./);
    expect((await holdfast(["--version"])).stdout).toBe(stdout);
    expect(versionVerb.output?.safeParse(JSON.parse((await holdfast(["version", "--json"])).stdout)).success).toBe(
      true,
    );
  });
});

describe("a wrong command line", () => {
  it.each([
    [["stauts"], "there is no verb 'stauts': did you mean status?"],
    [["frobnicate"], "there is no verb 'frobnicate': 'holdfast help' lists the verbs"],
    [["toString"], "there is no verb 'toString'"],
    [["help", "lgos"], "did you mean logs?"],
    [["status", "--jsno"], "status has no option --jsno: did you mean --json?"],
    [["status", "-x"], "status has no option -x"],
    [["status", "--toString"], "status has no option --toString"],
    [["status", "--frobnicate"], "run 'holdfast status --help' to see them all"],
    [["status", "--json=yes"], "--json takes no value"],
    [["status", "--run"], "--run needs a value"],
    [["status", "--run", "--watch"], "--run needs a value"],
    [["status", "--run="], "--run needs a directory"],
    [["status", "extra"], "status does not take the argument 'extra': holdfast status [options]"],
    [["status", "--timeout", "0"], "--timeout needs a number of seconds above 0, not 0"],
    [["status", "--timeout", "soon"], "not soon"],
    [["trigger"], "trigger needs <event>"],
    [["completion", "fissh"], "did you mean fish?"],
    [["completion", "tcsh"], "there is no completion for 'tcsh'"],
    [["help", "--json-schema"], "needs the name of a verb"],
    [["status", "--run", `/${"r".repeat(100)}`], "choose a shorter run directory"],
    [["\u001b[31mred"], "there is no verb 'red'"],
  ])("%j exits 2 with one sentence", async (args, message) => {
    const { code, stdout, stderr } = await runVerb(args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(/^holdfast: [^\n]+\n$/);
    expect(stderr).toContain(message);
  });

  it("ends the program with 2", async () => {
    const message = "holdfast: there is no verb 'stauts': did you mean status?\n";
    expect(await holdfast(["stauts"])).toEqual({ code: 2, stdout: "", stderr: message });
  });

  it("is an object too with --json", async () => {
    const { code, stdout } = await holdfast(["status", "--nonsense", "--json"]);
    expect(code).toBe(2);
    expect(LocalError.parse(JSON.parse(stdout)).error.code).toBe("usage");
  });
});
