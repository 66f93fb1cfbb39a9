import { AgentError, InputError, toError } from "../errors.ts";
import { systemClock } from "../host/clock.ts";
import { plainLine, safeJson } from "../lib/text/terminal-text.ts";
import { parseArguments } from "./frame/arguments.ts";
import { exitClassOf, exitCodes } from "./frame/exit-codes.ts";
import { findVerb, isRunnable } from "./frame/find-verb.ts";
import { settingsFrom } from "./frame/settings.ts";
import { processTerminal, readingColumns, type Terminal } from "./frame/terminal.ts";
import type { Offline, Verb, VerbSpec } from "./frame/verb.ts";
import { verbs } from "./verbs.ts";
import { defined } from "../lib/defined.ts";

/** Abort reason of Ctrl-C. */
class Interrupted extends InputError {
  static override readonly name = "Interrupted";
}

/** Runs one command line, without the program's name, and returns the exit code. */
export async function runCli(
  argv: readonly string[],
  offline: Offline,
  terminal: Terminal = processTerminal(),
): Promise<number> {
  const interrupt = new AbortController();
  const onSignal = (): void => interrupt.abort(new Interrupted("cancelled", "interrupted"));
  process.once("SIGINT", onSignal);
  process.once("SIGTERM", onSignal);
  try {
    const [first = "help", ...rest] = argv;
    const isVersion = first === "--version" || first === "-V";
    const isHelp = first === "--help" || first === "-h";
    const verb = await findVerb(verbs, isVersion ? "version" : isHelp ? "help" : first);
    return await runVerb(verb, rest, terminal, interrupt.signal, offline);
  } catch (thrown) {
    const error = toError(thrown);
    if (error instanceof Interrupted) return exitCodes.interrupted.code;
    report(error, terminal, argv.includes("--json"));
    return exitCodes[exitClassOf(error)].code;
  } finally {
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
  }
}

async function runVerb(
  verb: VerbSpec | Verb,
  argv: readonly string[],
  terminal: Terminal,
  signal: AbortSignal,
  offline: Offline,
): Promise<number> {
  const { values, positionals } = parseArguments(verb, argv);
  if (values["help"] === true) {
    const { verbHelp } = await import("./text/verb-help.ts");
    terminal.out(verbHelp(verb, readingColumns(terminal)));
    return exitCodes.ok.code;
  }
  const settings = settingsFrom(values, verb.timeoutSeconds);
  if (!isRunnable(verb)) throw new InputError("usage", `${verb.name} is not part of this build`);
  const exit = await verb.run({ values, positionals, settings, terminal, clock: systemClock(), offline, signal });
  return typeof exit === "number" ? exit : exitCodes[exit].code;
}

/** Prints the error as one sentence and, with `--json`, as one object. */
function report(error: Error, terminal: Terminal, isJson: boolean): void {
  terminal.err(`holdfast: ${plainLine(error.message)}\n`);
  if (!isJson) return;
  const code = error instanceof AgentError ? error.code : "internal";
  const details = error instanceof AgentError ? error.details : undefined;
  terminal.out(`${safeJson({ error: { code, message: error.message, ...defined({ details }) } })}\n`);
}
