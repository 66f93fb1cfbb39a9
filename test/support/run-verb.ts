import { exitClassOf, exitCodes } from "../../src/cli/frame/exit-codes.ts";
import { parseArguments } from "../../src/cli/frame/arguments.ts";
import { findVerb, isRunnable } from "../../src/cli/frame/find-verb.ts";
import { settingsFrom } from "../../src/cli/frame/settings.ts";
import type { Terminal } from "../../src/cli/frame/terminal.ts";
import { verbs } from "../../src/cli/verbs.ts";
import { InputError, toError } from "../../src/errors.ts";
import { systemClock } from "../../src/host/clock.ts";
import type { Finished } from "./run-holdfast.ts";

/** Runs one verb against a running agent as `holdfast` does, in this process: a program of its own would take a hundred times as long. */
export async function runVerb(args: readonly string[]): Promise<Finished> {
  const [name = "help", ...rest] = args;
  let stdout = "";
  let stderr = "";
  const terminal: Terminal = {
    out: (text) => void (stdout += text),
    err: (text) => void (stderr += text),
    readLine: () => Promise.resolve(undefined),
    isInteractive: false,
    size: () => ({ columns: Infinity, rows: Infinity }),
    style: (_style, text) => text,
  };
  const ended = (code: number): Finished => ({ code, stdout, stderr });
  try {
    const verb = await findVerb(verbs, name);
    if (!isRunnable(verb)) throw new InputError("usage", `${name} is a program of its own`);
    const { values, positionals } = parseArguments(verb, rest);
    const settings = settingsFrom(values, verb.timeoutSeconds);
    const { signal } = new AbortController();
    const call = { values, positionals, settings, terminal, clock: systemClock(), offline: {}, signal };
    const exit = await verb.run(call);
    return ended(typeof exit === "number" ? exit : exitCodes[exit].code);
  } catch (thrown) {
    const error = toError(thrown);
    terminal.err(`holdfast: ${error.message}\n`);
    return ended(exitCodes[exitClassOf(error)].code);
  }
}
