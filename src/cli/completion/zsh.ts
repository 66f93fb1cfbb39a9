import type { ArgumentSpec, Completion, OptionSpec, VerbSpec } from "../frame/verb.ts";

/** Returns a completion script for zsh, for `source` or as `_holdfast` in a directory of `fpath`. */
export function zshCompletion(verbs: readonly VerbSpec[]): string {
  return `#compdef holdfast
_holdfast() {
  local -a verbs=(
${verbs.map(({ name, summary }) => `    ${quote(`${name}:${summary}`)}\n`).join("")}  )
  if ((CURRENT == 2)); then
    _describe 'verb' verbs
    return
  fi
  local verb=\${words[2]}
  shift words
  ((CURRENT--))
  case $verb in
${verbs.map(verbCase).join("")}  esac
}
if [[ $funcstack[1] == _holdfast ]]; then
  _holdfast "$@"
else
  compdef _holdfast holdfast
fi
`;
}

function verbCase({ name, options, arguments: args }: VerbSpec): string {
  const specs = [
    ...Object.entries(options).map(([option, spec]) => optionSpec(option, spec)),
    ...args.map(argumentSpec),
  ];
  return `    ${name})\n      _arguments -s ${specs.map((spec) => `\\\n        ${spec}`).join(" ")}\n      ;;\n`;
}

function optionSpec(name: string, { short, value, help, complete }: OptionSpec): string {
  const tail = `[${help.replace(/[[\]]/g, "")}]${value === undefined ? "" : `:${value.replaceAll(":", " ")}:${action(complete ?? "none")}`}`;
  if (short === undefined) return quote(`--${name}${tail}`);
  return `'(-${short} --${name})'{-${short},--${name}}${quote(tail)}`;
}

function argumentSpec({ name, isRequired, complete }: ArgumentSpec, at: number): string {
  return quote(`${at + 1}:${isRequired ? "" : ":"}${name}:${action(complete)}`);
}

function action(complete: Completion): string {
  switch (complete) {
    case "none":
      return "";
    case "file":
      return "_files";
    case "directory":
      return "_files -/";
    default:
      return `(${complete.join(" ")})`;
  }
}

function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
