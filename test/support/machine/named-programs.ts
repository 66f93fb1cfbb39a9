import { spawn, type ChildProcess } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { deathTie } from "../../../src/host/process/death-tie.ts";
import { SEARCH_PATH } from "../../../src/host/process/exec.ts";
import { startAsUnit } from "./real-units.ts";

/** Programs by name, each with its output in `<name>.log`; they end with this process at the latest. Needs no test runner. */
export function namedPrograms(dir: string) {
  const running = new Map<string, { readonly child: ChildProcess; readonly gone: Promise<void> }>();
  const endOne = async (name: string, signal: NodeJS.Signals): Promise<void> => {
    const one = running.get(name);
    one?.child.kill(signal);
    await one?.gone;
  };
  return {
    start(name: string, commandLine: readonly string[]): ChildProcess {
      const out = openSync(join(dir, `${name}.log`), "a");
      const at = commandLine.indexOf(process.execPath);
      const [place, own] = at > 0 ? [commandLine.slice(0, at), commandLine.slice(at)] : [[], commandLine];
      const tied = deathTie(SEARCH_PATH)({ file: own[0] ?? "", args: own.slice(1) });
      const [command = "", ...args] = [...place, tied.file, ...tied.args];
      const asUnit = { command: own, within: place, log: join(dir, `${name}.log`) };
      const child = startAsUnit(asUnit) ?? spawn(command, args, { stdio: ["ignore", out, out] });
      closeSync(out);
      const gone = new Promise<void>((resolve) => {
        child.once("exit", () => {
          if (running.get(name)?.child === child) running.delete(name);
          resolve();
        });
      });
      running.set(name, { child, gone });
      return child;
    },
    pid: (name: string): number => running.get(name)?.child.pid ?? 0,
    endOne,
    async end(): Promise<void> {
      for (const name of ["agent", "registry", "controller"]) await endOne(name, "SIGKILL");
    },
  };
}
