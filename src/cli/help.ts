import { z } from "zod";
import { InputError } from "../errors.ts";
import { LocalError } from "../protocol/local/answers.ts";
import { usageOf } from "./frame/arguments.ts";
import { findVerb } from "./find-verb.ts";
import { exitCodes } from "./frame/exit-codes.ts";
import { layOut, readingColumns, wrap } from "./frame/terminal.ts";
import type { Verb, VerbProgram } from "./frame/verb.ts";
import { verbs } from "./verbs.ts";

export const helpVerb: VerbProgram = {
  output: undefined,
  async run({ positionals, values, terminal }) {
    const columns = readingColumns(terminal);
    const [name] = positionals;
    if (values["json-schema"] === true) terminal.out(await schemaText(name));
    else terminal.out(name === undefined ? overview(columns) : verbHelp(findVerb(name), columns));
    return "ok";
  },
};

/** What there is, for somebody who does not know yet. */
export function overview(columns: number): string {
  const rows = verbs.map(({ name, summary }) => [`  ${name}`, summary] as const);
  return [
    "Usage: holdfast <verb> [options]\n",
    `\n${layOut(rows, columns)}`,
    "\n'holdfast <verb> --help' shows a verb's options, exit codes and an example.\n",
  ].join("");
}

/** Everything about one verb. */
export function verbHelp(verb: Verb, columns: number): string {
  const args = verb.arguments.map(({ name, help }) => [`  <${name}>`, help] as const);
  const options = Object.entries(verb.options).map(([name, { short, value, help }]) => {
    const flag = `${short === undefined ? "    " : `-${short}, `}--${name}${value === undefined ? "" : ` ${value}`}`;
    const note = name === "timeout" ? ` (${verb.timeoutSeconds ?? 10})` : "";
    return [`  ${flag}`, help + note] as const;
  });
  const exits = verb.exits.map((name) => [`  ${exitCodes[name].code}`, exitCodes[name].meaning] as const);
  return [
    `Usage: ${usageOf(verb)}\n\n`,
    `${wrap(about(verb), columns).join("\n")}\n`,
    args.length === 0 ? "" : `\nArguments:\n${layOut(args, columns)}`,
    `\nOptions:\n${layOut(options, columns)}`,
    `\nExit codes:\n${layOut(exits, columns)}`,
    `\nExample:\n  ${verb.example}\n`,
  ].join("");
}

function about({ summary, about }: Verb): string {
  return `${summary[0]?.toUpperCase() ?? ""}${summary.slice(1)}.${about === undefined ? "" : ` ${about}`}`;
}

/** JSON Schema (2020-12) of each object a verb prints with `--json`: its output, or the error. */
async function schemaText(name: string | undefined): Promise<string> {
  if (name === undefined) throw new InputError("usage", "help --json-schema needs the name of a verb");
  const verb = findVerb(name);
  const output = (await verb.load?.())?.output;
  if (output === undefined) throw new InputError("usage", `${verb.name} prints no JSON`);
  const schema = z.toJSONSchema(z.union([output, LocalError]), { io: "input" });
  return `${JSON.stringify({ title: `holdfast ${verb.name} --json`, ...schema }, undefined, 2)}\n`;
}
