import { accessSync, constants, realpathSync } from "node:fs";
import { basename, join } from "node:path";

/** A program and its arguments. */
export interface CommandLine {
  readonly file: string;
  readonly args: readonly string[];
}

const SETPRIV = "/usr/bin/setpriv";

/**
 * Returns a function that wraps command lines so that the kernel kills the process when its parent dies, even by SIGKILL
 * (prctl(2) PR_SET_PDEATHSIG). setpriv(1) of util-linux sets this and then executes the tool. If setpriv is missing, or the tool
 * is not in `searchPath`, the command line stays unchanged.
 */
export function deathTie(searchPath: string, setpriv = SETPRIV): (command: CommandLine) => CommandLine {
  const hasSetpriv = isUsable(setpriv);
  return (command) => {
    if (!hasSetpriv || !isFound(command.file, searchPath)) return command;
    return { file: setpriv, args: ["--pdeathsig", "KILL", "--", command.file, ...command.args] };
  };
}

/** A multi-call program such as busybox(1) has the name but not the option. */
function isUsable(setpriv: string): boolean {
  try {
    return isExecutable(setpriv) && basename(realpathSync(setpriv)) === "setpriv";
  } catch {
    return false;
  }
}

/** Reports whether a program can be found in `searchPath`. A file that cannot be started then fails under its own name. */
export function isFound(file: string, searchPath: string): boolean {
  if (file.includes("/")) return isExecutable(file);
  return searchPath.split(":").some((directory) => isExecutable(join(directory, file)));
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
