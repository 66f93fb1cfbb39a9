import type { ArgumentSpec, Completion, OptionSpec, VerbSpec } from "../frame/verb.ts";

/** Returns a completion script for fish 3 and later. */
export function fishCompletion(verbs: readonly VerbSpec[]): string {
  const lines = verbs.flatMap((verb) => [
    complete("__fish_use_subcommand", `-a ${verb.name} -d ${quote(verb.summary)}`),
    ...Object.entries(verb.options).map(([name, spec]) => optionLine(verb.name, name, spec)),
    ...verb.arguments.map((spec, at) => argumentLine(verb.name, spec, at)).filter((line) => line !== ""),
  ]);
  return `# fish completion for holdfast
function __holdfast_argument -d 'whether the next argument of a verb is the one of this number'
    set -l words (commandline -opc)
    test "$words[2]" = "$argv[1]"; or return 1
    set -l at 0
    set -l skipped 0
    for word in $words[3..-1]
        if test $skipped = 1
            set skipped 0
        else if contains -- $word ${valueFlags(verbs).join(" ")}
            set skipped 1
        else if not string match -q -- '-?*' $word
            set at (math $at + 1)
        end
    end
    test $skipped = 0; and test $at = $argv[2]
end
complete -c holdfast -f
${lines.map((line) => `${line}\n`).join("")}`;
}

/** Options that take the next word as their value. */
function valueFlags(verbs: readonly VerbSpec[]): readonly string[] {
  const options = verbs.flatMap((verb) => Object.entries(verb.options)).filter(([, { value }]) => value !== undefined);
  const flags = options.flatMap(([name, { short }]) =>
    short === undefined ? [`--${name}`] : [`--${name}`, `-${short}`],
  );
  return [...new Set(flags)];
}

function optionLine(verb: string, name: string, { short, value, help, complete: values }: OptionSpec): string {
  const flags = `${short === undefined ? "" : `-s ${short} `}-l ${name} -d ${quote(help)}`;
  return complete(
    `__fish_seen_subcommand_from ${verb}`,
    value === undefined ? flags : `${flags} -r ${choice(values ?? "none")}`,
  );
}

function argumentLine(verb: string, { complete: values }: ArgumentSpec, at: number): string {
  return values === "none" ? "" : complete(`__holdfast_argument ${verb} ${at}`, choice(values));
}

function choice(values: Completion): string {
  switch (values) {
    case "none":
      return "-f";
    case "file":
      return "-F";
    case "directory":
      return "-a '(__fish_complete_directories)'";
    default:
      return `-a ${quote(values.join(" "))}`;
  }
}

function complete(condition: string, rest: string): string {
  return `complete -c holdfast -n ${quote(condition)} ${rest}`.trimEnd();
}

function quote(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}
