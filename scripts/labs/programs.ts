// The programs of a lab: each runs on its host, its output in a file, and is found again by its pid file.
import { spawn } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { CONTROLLER } from "./layout.ts";
import { LabError, ownEnv, until } from "./shell.ts";
import { startAsUnit } from "../../test/support/machine/real-units.ts";

export type ProgramName = "agent" | "overlay" | "controller";

const ROOT = join(import.meta.dirname, "../..");
const FLAGS = ["--disable-sigusr1", "--disable-warning=ExperimentalWarning"];

/** The command line of the checkout's bundle. */
export const HOLDFAST: readonly string[] = [process.execPath, ...FLAGS, join(ROOT, "dist/holdfast.mjs")];

/** Returns the directories of a host of a lab. */
export function placesOf(dir: string, host: string): { own: string; state: string; run: string } {
  const own = join(dir, host);
  return host === CONTROLLER
    ? { own, state: own, run: own }
    : { own, state: join(own, "state"), run: join(own, "run") };
}

/** Starts a program that outlives this one; `within` is put before its command line. Gives its pid. */
export function startAside(within: readonly string[], command: readonly string[], log: string): number {
  const [file = "", ...args] = [...within, ...command];
  mkdirSync(join(log, ".."), { recursive: true, mode: 0o700 });
  const asUnit = startAsUnit({ command, within, env: ownEnv(), log, isKept: true });
  if (asUnit !== undefined) return asUnit.pid ?? 0;
  const out = openSync(log, "a", 0o600);
  const child = spawn(file, args, { cwd: ROOT, detached: true, stdio: ["ignore", out, out], env: ownEnv() });
  closeSync(out);
  child.on("error", () => undefined).unref();
  if (child.pid === undefined) throw new LabError(`cannot start ${file}`);
  return child.pid;
}

/** The process of a program, while it runs. */
export function pidOf(dir: string, host: string, program: ProgramName): number | undefined {
  const path = join(placesOf(dir, host).run, `${program}.pid`);
  const pid = existsSync(path) ? Number(readFileSync(path, "utf8")) : Number.NaN;
  return Number.isInteger(pid) && isOurs(pid) ? pid : undefined;
}

/** Sends a signal and waits for the end; a program that does not run is none to wait for. */
export async function endProgram(
  dir: string,
  host: string,
  program: ProgramName,
  signal: NodeJS.Signals,
): Promise<void> {
  const pid = pidOf(dir, host, program);
  if (pid === undefined) return;
  process.kill(pid, signal);
  await until(`the ${program} of ${host} has ended`, () => !isOurs(pid));
}

/** A number may have been given to another program since. */
function isOurs(pid: number): boolean {
  const path = `/proc/${pid}/cmdline`;
  return existsSync(path) && /\b(?:holdfast|overlay)\.mjs\b/.test(readFileSync(path, "utf8"));
}
