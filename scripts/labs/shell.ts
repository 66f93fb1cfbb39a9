// Other programs, run to their end, and processes of network namespaces.
import { spawn, spawnSync } from "node:child_process";
import { text } from "node:stream/consumers";

/** Something is wrong with the machine or with how the lab is used; the message is all that is to be said. */
export class LabError extends Error {}

/**
 * Runs a program to its end and gives what it printed.
 * @throws {LabError} with what it said when it fails.
 */
export function run(command: readonly string[], input = ""): string {
  const [file = "", ...args] = command;
  const { status, stdout, stderr, error } = spawnSync(file, args, { encoding: "utf8", input, env: ownEnv() });
  if (status === 0) return stdout;
  throw new LabError(`${command.join(" ")}: ${error?.message ?? `${stdout}${stderr}`.trim()}`);
}

/** The same without blocking this process. */
export async function runAside(command: readonly string[], input = ""): Promise<string> {
  const [file = "", ...args] = command;
  const child = spawn(file, args, { stdio: ["pipe", "pipe", "pipe"], env: ownEnv() });
  child.stdin.on("error", () => undefined).end(input);
  const ended = new Promise<number | null>((resolve, reject) => child.once("error", reject).once("close", resolve));
  const [stdout, stderr, status] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
  if (status === 0) return stdout;
  throw new LabError(`${command.join(" ")}: exit status ${status}\n${stdout}${stderr}`.trim());
}

/** The environment of everything in a lab: none of the proxies and settings of the machine. */
export function ownEnv(): Record<string, string> {
  const { PATH = "", HOME = "/", TERM, HOLDFAST_LOG_LEVEL: level, NODE_COMPILE_CACHE: cache } = process.env;
  return {
    PATH,
    HOME,
    ...(TERM === undefined ? {} : { TERM }),
    ...(level === undefined ? {} : { HOLDFAST_LOG_LEVEL: level }),
    ...(cache === undefined ? {} : { NODE_COMPILE_CACHE: cache }),
  };
}

/** Waits until `probe` gives something else than undefined or false, and passes on its last failure if it never does. */
export async function until<T>(
  what: string,
  probe: () => T | Promise<T>,
  limitMs = 30_000,
): Promise<Exclude<T, undefined | false>> {
  const end = performance.now() + limitMs;
  let last: unknown;
  for (;;) {
    try {
      const value = await probe();
      if (value !== undefined && value !== false) return value as Exclude<T, undefined | false>;
      last = undefined;
    } catch (error) {
      last = error;
    }
    if (performance.now() > end) {
      const reason = last instanceof Error ? `: ${last.message}` : "";
      throw new LabError(`waited ${limitMs / 1000} s in vain until ${what}${reason}`, { cause: last });
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
