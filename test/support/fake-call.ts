import type { Call } from "../../src/cli/frame/verb.ts";
import { systemClock } from "../../src/host/clock.ts";
import type { Directories } from "./local-agent.ts";

export interface FakeCall {
  readonly call: Call;
  /** All output, on either stream. */
  readonly shown: string[];
}

/** A verb's call inside the test's process, for what a child process cannot be given. */
export function someCall(
  dirs: Pick<Directories, "stateDir" | "runDir">,
  changes: Partial<Call>,
  typed?: string,
): FakeCall {
  const shown: string[] = [];
  const terminal: Call["terminal"] = {
    out: (text) => void shown.push(text),
    err: (text) => void shown.push(text),
    readLine: () => Promise.resolve(typed),
    isInteractive: false,
    size: () => ({ columns: 80, rows: 24 }),
    style: (_style, text) => text,
  };
  const settings = {
    stateDir: dirs.stateDir,
    runDir: dirs.runDir,
    given: { state: dirs.stateDir, run: dirs.runDir },
    isJson: false,
    timeoutMs: 30_000,
  };
  const { signal } = new AbortController();
  return {
    call: { values: {}, positionals: [], settings, terminal, clock: systemClock(), offline: {}, signal, ...changes },
    shown,
  };
}
