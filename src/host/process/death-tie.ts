import { accessSync, constants, realpathSync } from "node:fs";
import { basename, join } from "node:path";

/** A program and its arguments. */
export interface CommandLine {
  readonly file: string;
  readonly args: readonly string[];
}

const SETPRIV = "/usr/bin/setpriv";

/**
 * Makes command lines whose process the kernel kills when the one that started it dies, be it by SIGKILL: prctl(2) PR_SET_PDEATHSIG,
 * set by setpriv(1) of util-linux, which then becomes the tool. Where that is missing, or the tool cannot be found in `searchPath`,
 * the command line stays as it is.
 */
export function deathTie(searchPath: string, setpriv = SETPRIV): (command: CommandLine) => CommandLine {
  const hasSetpriv = isUsable(setpriv);
  return (command) => {
    if (!hasSetpriv || !isFound(command.file, searchPath)) return command;
    return { file: setpriv, args: ["--pdeathsig", "KILL", "--", command.file, ...command.args] };
  };
}

/** One program that plays many parts, as busybox(1) does, knows the name but not the option. */
function isUsable(setpriv: string): boolean {
  try {
    return isExecutable(setpriv) && basename(realpathSync(setpriv)) === "setpriv";
  } catch {
    return false;
  }
}

/** Reports whether a program can be found; one that cannot be started is left to fail by itself, and so under its own name. */
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
