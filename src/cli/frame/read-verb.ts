import type { z } from "zod";
import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import { fetchReport } from "./client.ts";
import type { ExitClass } from "./exit-codes.ts";
import { viewOf, type View } from "./terminal.ts";
import { COMMON, WATCH } from "./verb-options.ts";
import type { Call, Verb } from "./verb.ts";
import { watch } from "./watch.ts";
import { defined } from "../../lib/defined.ts";

/** Declares a verb that shows one report of the agent. */
interface Reading<T> {
  /** Path of the report on the agent's read socket. */
  readonly path: string;
  readonly schema: z.ZodType<T>;
  /** Formats the report, which holds no control characters. */
  readonly text: (report: T, view: View) => string;
  /** Returns the exit class; `ok` by default. */
  readonly exit?: (report: T, call: Call) => ExitClass | Promise<ExitClass>;
}

interface ReadSpec<T> extends Reading<T> {
  readonly name: string;
  readonly summary: string;
  readonly about?: string;
  readonly exits?: readonly ExitClass[];
  readonly example?: string;
}

const EXITS: readonly ExitClass[] = ["ok", "failed", "usage", "unreachable", "degraded", "timeout"];

/** Returns a verb that prints one report of the agent, every second with `--watch`. */
export function readVerb<T>({ name, summary, about, exits = EXITS, example, ...reading }: ReadSpec<T>): Verb {
  return {
    name,
    summary,
    ...defined({ about }),
    arguments: [],
    options: { ...WATCH, ...COMMON },
    exits,
    example: example ?? `holdfast ${name}`,
    output: reading.schema,
    run: (call) => showReport(call, reading),
  };
}

/** Prints one report of the agent, every second with `--watch`. */
export async function showReport<T>(call: Call, { path, schema, text, exit }: Reading<T>): Promise<ExitClass> {
  const shown = (report: T): string =>
    call.settings.isJson ? `${safeJson(report)}\n` : text(plainValue(report), viewOf(call));
  if (call.values["watch"] === true) return watch(call, async () => shown(await fetchReport(call, path, schema)));
  const report = await fetchReport(call, path, schema);
  const ended = await exit?.(report, call);
  call.terminal.out(shown(report));
  return ended ?? "ok";
}
