import type { Completion, OptionSpec, VerbSpec } from "../frame/verb.ts";

/** Returns a completion script for bash 4 and later; it needs no bash-completion package. */
export function bashCompletion(verbs: readonly VerbSpec[]): string {
  return `# bash completion for holdfast
_holdfast() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]} verb=\${COMP_WORDS[1]} values= options= at=0 i
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '${verbs.map(({ name }) => name).join(" ")}' -- "$current"))
    return
  fi
  case $verb in
${verbs.map(verbCase).join("")}    *) return ;;
  esac
  for i in $values; do
    [[ $previous == "$i" ]] && return
  done
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
    return
  fi
  for ((i = 2; i < COMP_CWORD; i++)); do
    if [[ \${COMP_WORDS[i]} == -* ]]; then
      [[ " $values " == *" \${COMP_WORDS[i]} "* ]] && i=$((i + 1))
    else
      at=$((at + 1))
    fi
  done
  case $verb:$at in
${verbs.flatMap(argumentCases).join("")}  esac
}
complete -F _holdfast holdfast
`;
}

function verbCase(verb: VerbSpec): string {
  const all = Object.entries(verb.options).flatMap(flagsOf);
  const withValue = Object.entries(verb.options).filter(([, { value }]) => value !== undefined);
  const valueFlags = withValue.flatMap(flagsOf);
  const completing = withValue.flatMap((option) => {
    const command = replyOf(option[1].complete ?? "none");
    return command === undefined ? [] : [`${flagsOf(option).join("|")}) ${command}; return ;;`];
  });
  return `    ${verb.name})
      options='${all.join(" ")}' values='${valueFlags.join(" ")}'
${completing.length === 0 ? "" : `      case $previous in\n${completing.map((line) => `        ${line}\n`).join("")}      esac\n`}      ;;
`;
}

function argumentCases(verb: VerbSpec): string[] {
  return verb.arguments.flatMap(({ complete }, at) => {
    const command = replyOf(complete);
    return command === undefined ? [] : [`    ${verb.name}:${at}) ${command} ;;\n`];
  });
}

function replyOf(complete: Completion): string | undefined {
  switch (complete) {
    case "none":
      return undefined;
    case "file":
      return 'compopt -o filenames 2>/dev/null || :; mapfile -t COMPREPLY < <(compgen -f -- "$current")';
    case "directory":
      return 'compopt -o filenames 2>/dev/null || :; mapfile -t COMPREPLY < <(compgen -d -- "$current")';
    default:
      return `COMPREPLY=($(compgen -W '${complete.join(" ")}' -- "$current"))`;
  }
}

function flagsOf([name, { short }]: readonly [string, OptionSpec]): readonly string[] {
  return short === undefined ? [`--${name}`] : [`--${name}`, `-${short}`];
}
