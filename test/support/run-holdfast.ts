import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { fileURLToPath } from "node:url";
import { compileCache } from "./compile-cache.ts";

const MAIN = fileURLToPath(new URL("../../dist/holdfast.mjs", import.meta.url));

export interface Finished {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly input?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** A running `holdfast` command. */
export interface Running {
  readonly child: ChildProcessWithoutNullStreams;
  readonly finished: Promise<Finished>;
  /** Resolves as soon as the output matches the pattern. */
  until(pattern: RegExp): Promise<void>;
}

/** Starts the checkout's program as a child process. */
export function startHoldfast(args: readonly string[], options: RunOptions = {}): Running {
  const { PATH = "" } = process.env;
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", MAIN, ...args], {
    env: { PATH, ...compileCache(), ...options.env },
  });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  // A command that does not read its input may exit first.
  child.stdin.on("error", () => undefined);
  child.stdin.end(options.input ?? "");
  const finished = new Promise<Finished>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve({ code, stdout, stderr }));
  });
  const until = (pattern: RegExp): Promise<void> =>
    new Promise((resolve, reject) => {
      const check = (): void => {
        if (pattern.test(stdout + stderr)) resolve();
      };
      child.stdout.on("data", check);
      child.stderr.on("data", check);
      child.once("close", () => reject(new Error(`ended without ${String(pattern)}: ${stdout}${stderr}`)));
      check();
    });
  return { child, finished, until };
}

/** Runs the checkout's program to its end. */
export function holdfast(args: readonly string[], options: RunOptions = {}): Promise<Finished> {
  return startHoldfast(args, options).finished;
}
