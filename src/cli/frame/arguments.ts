import { isCompactJws } from "../../lib/formats/compact-jws.ts";
import { parseArgs } from "node:util";
import { InputError } from "../../errors.ts";
import { nearest } from "../../lib/text/nearest.ts";
import type { VerbSpec } from "./verb.ts";
import { defined } from "../../lib/defined.ts";

export interface Arguments {
  readonly values: Readonly<Record<string, string | boolean>>;
  readonly positionals: readonly string[];
}

/**
 * Reads a verb's own options and arguments.
 * @throws {InputError} `usage` naming what is wrong and, for a misspelling, the nearest option.
 */
export function parseArguments(verb: VerbSpec, argv: readonly string[]): Arguments {
  const options = Object.fromEntries(
    Object.entries(verb.options).map(([name, { short, value }]) => [
      name,
      {
        type: value === undefined ? ("boolean" as const) : ("string" as const),
        ...defined({ short }),
      },
    ]),
  );
  const { tokens } = parseArgs({ args: [...argv], options, strict: false, tokens: true, allowPositionals: true });
  const values: Record<string, string | boolean> = {};
  const positionals: string[] = [];
  for (const token of tokens) {
    if (token.kind === "positional") positionals.push(token.value);
    if (token.kind !== "option") continue;
    const spec = Object.hasOwn(verb.options, token.name) ? verb.options[token.name] : undefined;
    if (spec === undefined) throw unknownOption(verb, token.rawName, token.name);
    values[token.name] = spec.value === undefined ? noValue(token.rawName, token.value) : value(token.rawName, token);
  }
  if (values["help"] !== true) checkCount(verb, positionals);
  return { values, positionals };
}

/** Returns the usage of a verb: `holdfast logs [options]`. */
export function usageOf(verb: VerbSpec): string {
  const args = verb.arguments.map(({ name, isRequired, isRest }) =>
    isRequired ? `<${name}>` : isRest === true ? `[-- ${name}...]` : `[${name}]`,
  );
  return ["holdfast", verb.name, ...args, "[options]"].join(" ");
}

function unknownOption(verb: VerbSpec, rawName: string, name: string): InputError {
  const near = nearest(name, Object.keys(verb.options));
  const hint = near === undefined ? `run 'holdfast ${verb.name} --help' to see them all` : `did you mean --${near}?`;
  return new InputError("usage", `${verb.name} has no option ${rawName}: ${hint}`);
}

function noValue(rawName: string, given: string | undefined): true {
  if (given === undefined) return true;
  throw new InputError("usage", `${rawName} takes no value: leave out =${shown(given)}`);
}

function value(
  rawName: string,
  token: { readonly value?: string | undefined; readonly inlineValue?: boolean | undefined },
): string {
  const given = token.value;
  const isNextOption = token.inlineValue === false && given !== undefined && /^-./.test(given);
  if (given === undefined || isNextOption) throw new InputError("usage", `${rawName} needs a value`);
  return given;
}

function checkCount(verb: VerbSpec, positionals: readonly string[]): void {
  const missing = verb.arguments.find(({ isRequired }, at) => isRequired && positionals[at] === undefined);
  if (missing !== undefined) {
    throw new InputError("usage", `${verb.name} needs <${missing.name}>, ${missing.help}: ${usageOf(verb)}`);
  }
  const extra = verb.arguments.at(-1)?.isRest === true ? undefined : positionals[verb.arguments.length];
  if (extra !== undefined) {
    throw new InputError("usage", `${verb.name} does not take the argument '${shown(extra)}': ${usageOf(verb)}`);
  }
}

function shown(argument: string): string {
  return isCompactJws(argument) ? "(a license)" : argument;
}
