import { InputError } from "../../errors.ts";
import { nearest } from "../../lib/text/nearest.ts";
import { bashCompletion } from "../completion/bash.ts";
import { fishCompletion } from "../completion/fish.ts";
import { zshCompletion } from "../completion/zsh.ts";
import { allVerbs } from "../frame/find-verb.ts";
import { DIRECTORIES } from "../frame/verb-options.ts";
import type { Verb, VerbList, VerbSpec } from "../frame/verb.ts";

const SCRIPTS: Readonly<Record<string, (verbs: readonly VerbSpec[]) => string>> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
};

/** Returns the verb that prints completion scripts for these verbs. */
export function completionVerb(verbs: VerbList): Verb {
  return {
    name: "completion",
    summary: "print a completion script for a shell",
    arguments: [{ name: "shell", isRequired: true, help: "bash, zsh or fish", complete: Object.keys(SCRIPTS) }],
    options: DIRECTORIES,
    exits: ["ok", "usage"],
    example: "source <(holdfast completion bash)",
    output: undefined,
    async run({ positionals, terminal }) {
      const shell = positionals[0] ?? "";
      const script = Object.hasOwn(SCRIPTS, shell) ? SCRIPTS[shell] : undefined;
      if (script === undefined) {
        const near = nearest(shell, Object.keys(SCRIPTS));
        const hint = near === undefined ? "choose bash, zsh or fish" : `did you mean ${near}?`;
        throw new InputError("usage", `there is no completion for '${shell}': ${hint}`);
      }
      terminal.out(script((await allVerbs(verbs)).map(withVerbNames(Object.keys(verbs)))));
      return "ok";
    },
  };
}

/** Completes the argument of `help` with the names of all verbs. */
function withVerbNames(names: readonly string[]): (verb: VerbSpec) => VerbSpec {
  return (verb) =>
    verb.name === "help" ? { ...verb, arguments: verb.arguments.map((spec) => ({ ...spec, complete: names })) } : verb;
}
