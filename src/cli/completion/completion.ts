import { InputError } from "../../errors.ts";
import { nearest } from "../../lib/text/nearest.ts";
import { bashCompletion } from "./bash.ts";
import { fishCompletion } from "./fish.ts";
import { zshCompletion } from "./zsh.ts";
import type { Verb, VerbProgram } from "../frame/verb.ts";
import { verbs } from "../verbs.ts";

/** Makes a completion script from the verbs. */
const SCRIPTS: Readonly<Record<string, (verbs: readonly Verb[]) => string>> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
};

export const completionVerb: VerbProgram = {
  output: undefined,
  run({ positionals, terminal }) {
    const shell = positionals[0] ?? "";
    const script = Object.hasOwn(SCRIPTS, shell) ? SCRIPTS[shell] : undefined;
    if (script === undefined) {
      const near = nearest(shell, Object.keys(SCRIPTS));
      const hint = near === undefined ? "bash, zsh and fish are there" : `did you mean ${near}?`;
      throw new InputError("usage", `there is no completion for '${shell}': ${hint}`);
    }
    terminal.out(script(withHelpNames(verbs)));
    return Promise.resolve("ok");
  },
};

/** `help` takes the name of any verb, which its own entry in the list of verbs cannot say. */
function withHelpNames(all: readonly Verb[]): readonly Verb[] {
  const names = all.map(({ name }) => name);
  return all.map((verb) =>
    verb.name === "help" ? { ...verb, arguments: verb.arguments.map((spec) => ({ ...spec, complete: names })) } : verb,
  );
}
