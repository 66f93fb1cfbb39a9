import { usageOf } from "../frame/arguments.ts";
import { exitCodes } from "../frame/exit-codes.ts";
import { layOut, wrap } from "../frame/terminal.ts";
import type { VerbSpec } from "../frame/verb.ts";

/** Lists the verbs with a line each. */
export function overview(verbs: readonly VerbSpec[], columns: number): string {
  const rows = verbs.map(({ name, summary }) => [`  ${name}`, summary] as const);
  return [
    "Usage: holdfast <verb> [options]\n",
    `\n${layOut(rows, columns)}`,
    "\n'holdfast <verb> --help' shows a verb's options, exit codes and an example.\n",
  ].join("");
}

export function verbHelp(verb: VerbSpec, columns: number): string {
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

function about({ summary, about }: VerbSpec): string {
  return `${summary[0]?.toUpperCase() ?? ""}${summary.slice(1)}.${about === undefined ? "" : ` ${about}`}`;
}
