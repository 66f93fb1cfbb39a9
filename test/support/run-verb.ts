import { runCli } from "../../src/cli/cli.ts";
import type { Finished } from "./run-holdfast.ts";

/**
 * Runs a command line in this process, for what depends only on its arguments and a running agent: a program of its own would take a
 * hundred times as long.
 */
export async function runVerb(args: readonly string[]): Promise<Finished> {
  let [stdout, stderr] = ["", ""];
  const code = await runCli(
    args,
    {},
    {
      out: (text) => void (stdout += text),
      err: (text) => void (stderr += text),
      readLine: () => Promise.resolve(undefined),
      isInteractive: false,
      size: () => ({ columns: Infinity, rows: Infinity }),
      style: (_style, text) => text,
    },
  );
  return { code, stdout, stderr };
}
