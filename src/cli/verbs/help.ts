import { z } from "zod";
import { InputError } from "../../errors.ts";
import { LocalError } from "../../protocol/local/answers.ts";
import { allVerbs, findVerb, isRunnable } from "../frame/find-verb.ts";
import { readingColumns } from "../frame/terminal.ts";
import { DIRECTORIES } from "../frame/verb-options.ts";
import type { Verb, VerbList } from "../frame/verb.ts";
import { overview, verbHelp } from "../text/verb-help.ts";

/** Returns the verb that shows the help of these verbs. */
export function helpVerb(verbs: VerbList): Verb {
  return {
    name: "help",
    summary: "show how to use holdfast or one of its verbs",
    arguments: [{ name: "verb", isRequired: false, help: "the verb", complete: "none" }],
    options: { "json-schema": { help: "print the JSON Schema of what the verb prints with --json" }, ...DIRECTORIES },
    exits: ["ok", "usage"],
    example: "holdfast help --json-schema status",
    output: undefined,
    async run({ positionals, values, terminal }) {
      const columns = readingColumns(terminal);
      const [name] = positionals;
      if (values["json-schema"] === true) terminal.out(await schemaText(verbs, name));
      else if (name === undefined) terminal.out(overview(await allVerbs(verbs), columns));
      else terminal.out(verbHelp(await findVerb(verbs, name), columns));
      return "ok";
    },
  };
}

/** Returns the JSON Schema (2020-12) of each object that a verb prints with `--json`: its output, or the error. */
async function schemaText(verbs: VerbList, name: string | undefined): Promise<string> {
  if (name === undefined) throw new InputError("usage", "help --json-schema needs the name of a verb");
  const verb = await findVerb(verbs, name);
  if (!isRunnable(verb) || verb.output === undefined) throw new InputError("usage", `${verb.name} prints no JSON`);
  const schema = z.toJSONSchema(z.union([verb.output, LocalError]), { io: "input" });
  return `${JSON.stringify({ title: `holdfast ${verb.name} --json`, ...schema }, undefined, 2)}\n`;
}
