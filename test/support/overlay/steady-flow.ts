import { spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { bundled } from "../bundled.ts";
import { waitFor } from "../wait-for.ts";

const PROGRAM = join(import.meta.dirname, "steady-flow-program.ts");

/** A TCP flow that stays busy until it is ended, or breaks. */
export interface SteadyFlow {
  /** Waits for further echoes, of what is sent after this call; fails when the flow breaks. */
  continues(): Promise<void>;
  end(): void;
}

/** Starts an echo server on a port; `within` is a command prefix. */
export async function startEcho(within: readonly string[], port: number): Promise<void> {
  const output = run(within, [String(port)]).output;
  await waitFor(`an echo on ${port}`, () => output.at(-1) === "listening");
}

/** Opens a flow and waits for its first echo. */
export async function startFlow(within: readonly string[], host: string, port: number): Promise<SteadyFlow> {
  const { child, output } = run(within, [host, String(port)]);
  const continues = async (): Promise<void> => {
    // One echo may be of a number sent before.
    const enough = output.length + 2;
    await waitFor("the flow goes on", () => output.length >= enough || child.exitCode !== null);
    if (child.exitCode !== null) throw new Error(`the flow after ${output.length - 1} exchanges: ${output.at(-1)}`);
  };
  await continues();
  return { continues, end: () => void child.kill("SIGKILL") };
}

function run([file = "", ...before]: readonly string[], args: readonly string[]) {
  const child = spawn(file, [...before, process.execPath, bundled(PROGRAM), ...args], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const output: string[] = [];
  createInterface(child.stdout).on("line", (line) => output.push(line));
  return { child, output };
}
